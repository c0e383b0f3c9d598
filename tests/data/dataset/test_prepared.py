from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from gptlite.config.schema import DataSection, TokenizerSection
from gptlite.data.dataset.batches import Batches
from gptlite.data.dataset.prepared import ADVICE, Prepared, Split, dtype_for, header, shard_name
from gptlite.data.preparing.prepare import prepare
from gptlite.errors import DataError, RunError
from gptlite.storage.sealed import MANIFEST, SealedFolder, read_sealed, write_file, write_manifest, write_sealed

CHAR = TokenizerSection(kind="char")


@pytest.fixture
def prepared(tmp_path: Path) -> Prepared:
    (tmp_path / "book.txt").write_text("0123456789" * 20)
    return prepare(DataSection(source=str(tmp_path / "book.txt"), dir=str(tmp_path)), CHAR)


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


def test_block_sizes_that_do_not_fit_name_the_largest_that_does(prepared: Prepared) -> None:
    prepared.check_block_size(179)
    with pytest.raises(
        DataError,
        match=r"\(train\): the text has 180 tokens, but model.block_size 180 needs .* 181. Use .*=179 or less, or",
    ):
        prepared.check_block_size(180)
    assert Batches(prepared.split("train"), 179, 2, seed=0).rows(0)[0].shape == (2, 179)


def test_another_tokenizer_in_the_folder_is_refused(prepared: Prepared) -> None:
    path = prepared.path / MANIFEST
    fields = read_sealed(path)
    fields["tokenizer"].update(fingerprint="f" * 64)
    write_sealed(path, fields)
    with pytest.raises(
        RunError, match=r"tokenizer: this is not the tokenizer of the ids: .* theirs with f{12} and 11\. "
    ):
        Prepared(prepared.path).tokenizer()
