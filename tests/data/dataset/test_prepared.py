from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gptlite.config.schema import DataSection, TokenizerSection
from gptlite.data.dataset.batches import Batches
from gptlite.data.dataset.prepared import ADVICE, Prepared, Split, dtype_for, header, shard_name
from gptlite.data.preparing.prepare import prepare
from gptlite.errors import Damaged, DataError, RunError
from gptlite.storage.sealed import MANIFEST, SealedFolder, dump_sealed, write_file, write_manifest

CHAR = TokenizerSection(kind="char")


@pytest.fixture
def prepared(tmp_path: Path) -> Prepared:
    (tmp_path / "book.txt").write_text("0123456789" * 20)
    return prepare(DataSection(source=str(tmp_path / "book.txt"), dir=str(tmp_path)), CHAR)


def edit(prepared: Prepared, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the fields of a manifest and seal it again, as someone could who knows the format."""
    path = prepared.path / MANIFEST
    fields = json.loads(path.read_text("utf-8"))
    change(fields)
    path.write_bytes(dump_sealed({key: value for key, value in fields.items() if key != "sha256"}))


def split_of(folder: Path, *shards: list[int], vocab_size: int = 300) -> Split:
    """Write a training split in these shards."""
    written = {}
    for number, ids in enumerate(shards):
        data = header(vocab_size) + np.array(ids, dtype_for(vocab_size)).tobytes()
        written[shard_name("train", number)] = write_file(folder, shard_name("train", number), data)
    write_manifest(folder, {}, written)
    return Split(SealedFolder.open(folder, ADVICE), "train", vocab_size)


def test_the_bytes_on_disk_are_the_documented_format(prepared: Prepared) -> None:
    expected = struct.pack("<8sII", b"GPTLITE\0", 2, 1) + struct.pack("<20H", *range(10), *range(10))
    assert (prepared.path / "val-00000.bin").read_bytes() == expected


@pytest.mark.parametrize(("vocab_size", "item_bytes"), [(65536, 2), (65537, 4)])
def test_two_bytes_are_used_where_every_id_fits(tmp_path: Path, vocab_size: int, item_bytes: int) -> None:
    split = split_of(tmp_path, [vocab_size - 1], vocab_size=vocab_size)
    assert (tmp_path / "train-00000.bin").stat().st_size == 16 + item_bytes
    assert split.read(0, 1).tolist() == [vocab_size - 1]


def test_a_shard_of_other_ids_is_refused(tmp_path: Path) -> None:
    split_of(tmp_path, [1, 2, 3, 4])
    with pytest.raises(RunError, match=r"train-00000\.bin: it does not begin as a file of these ids does\. "):
        Split(SealedFolder.open(tmp_path, ADVICE), "train", 65537)


def test_reading_crosses_shards(tmp_path: Path) -> None:
    ids = list(range(100))
    split = split_of(tmp_path, *(ids[start : start + 7] for start in range(0, 100, 7)))
    for start in range(0, 101):
        for length in (0, 1, 6, 7, 8, 23, 100):
            if start + length <= 100:
                assert split.read(start, length).tolist() == list(range(start, start + length))
    with pytest.raises(IndexError):
        split.read(99, 2)


def test_block_sizes_that_do_not_fit_name_the_largest_that_does(prepared: Prepared) -> None:
    prepared.check_block_size(179)
    with pytest.raises(
        DataError,
        match=r"\(train\): the text has 180 tokens, but model.block_size 180 needs .* 181. Use .*=179 or less, or",
    ):
        prepared.check_block_size(180)
    assert Batches(prepared.split("train"), 179, 2, seed=0).rows(0)[0].shape == (2, 179)


def test_another_tokenizer_in_the_folder_is_refused(prepared: Prepared) -> None:
    edit(prepared, lambda fields: fields["tokenizer"].update(fingerprint="f" * 64))
    with pytest.raises(
        RunError, match=r"tokenizer: this is not the tokenizer of the ids: .* theirs with f{12} and 11\. "
    ):
        Prepared(prepared.path).tokenizer()


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (lambda fields: fields.update(start_id=-1), "start_id"),
        (lambda fields: fields.update(start_id=11), "start_id is 11, and the vocabulary has 11 ids"),
        (lambda fields: fields.update(fingerprint="z" * 64), "fingerprint"),
        (lambda fields: fields["tokenizer"].update(vocab_size=0), "tokenizer.vocab_size"),
        (lambda fields: fields["files"].update({"../x": {"size": 1, "sha256": "0" * 64}}), "size and sha256 of each"),
        (lambda fields: fields["train"].update(tokens=181), "train.tokens is 181, and its files have 180"),
        (lambda fields: fields["train"].update(tokens=1 << 70), "train.tokens"),
        (lambda fields: fields["files"].pop("val-00000.bin"), "val.tokens is 20, and its files have 0"),
        (lambda fields: fields.update(sources=fields["sources"] + ["x"]), "sources.1"),
        (lambda fields: fields.update(more=1), "more"),
        (lambda fields: fields.pop("split_rule"), "split_rule"),
    ],
)
def test_an_odd_manifest_names_the_key_in_one_line(
    prepared: Prepared, change: Callable[[dict[str, Any]], object], key: str
) -> None:
    edit(prepared, change)
    with pytest.raises(Damaged, match=rf"^[^\n]*MANIFEST\.json: [^\n]*({key})[^\n]*prepare the text again\.$"):
        Prepared(prepared.path)


@pytest.mark.parametrize("name", [MANIFEST, "train-00000.bin", "tokenizer/tokenizer.json"])
@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_links_pipes_and_folders_are_refused_without_waiting(prepared: Prepared, name: str, kind: str) -> None:
    path = prepared.path / name
    moved = path.rename(prepared.path / "moved")
    if kind == "link":
        path.symlink_to(moved)
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    with pytest.raises(Damaged, match=rf"^[^\n]*{name}: [^\n]*cannot [^\n]*$"):
        Prepared(prepared.path)


def test_a_shard_that_is_cut_while_it_is_in_use_is_named(prepared: Prepared) -> None:
    split = Prepared(prepared.path).split("train")
    os.truncate(prepared.path / "train-00000.bin", 64)
    with pytest.raises(Damaged, match=r"train-00000\.bin: the file was cut while it was in use\. "):
        split.read(0, 10)
