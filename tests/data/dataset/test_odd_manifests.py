"""Prepared folders whose seals fit, but that no gptlite wrote; files that are links, pipes, unreadable or cut."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gptlite.config.schema import DataSection, TokenizerSection
from gptlite.data.dataset import checked_files
from gptlite.data.dataset.prepared import Prepared
from gptlite.data.preparing.prepare import prepare
from gptlite.errors import DataError, StorageError

Change = Callable[[dict[str, Any]], object]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "book.txt").write_text("0123456789" * 20)
    data = DataSection(source=str(tmp_path / "book.txt"), dir=str(tmp_path / "prepared"))
    return prepare(data, TokenizerSection(kind="char")).path


def edit(folder: Path, change: Change) -> None:
    """Change the fields of a manifest and seal it again."""
    path = folder / "manifest.json"
    fields = json.loads(path.read_text())
    del fields["sha256"]
    change(fields)
    sealed = (json.dumps(fields, indent=2, sort_keys=True) + "\n").encode()
    path.write_text(json.dumps(fields | {"sha256": hashlib.sha256(sealed).hexdigest()}))


def rewrite(folder: Path, name: str, ids: list[int], starts: list[int]) -> None:
    """Replace the ids and the index of a split by others, with digests that fit."""
    raw, index = np.array(ids, "<u2").tobytes(), np.array(starts, "<u8").tobytes()
    path = folder / f"{name}-00000.bin"
    header = bytearray(path.read_bytes()[:64])
    header[32:] = hashlib.sha256(raw).digest()
    path.write_bytes(bytes(header) + raw)
    path.with_suffix(".idx").write_bytes(index)

    def change(fields: dict[str, Any]) -> None:
        fields[name]["shards"][0]["sha256"] = hashlib.sha256(raw).hexdigest()
        fields[name]["shards"][0]["index_sha256"] = hashlib.sha256(index).hexdigest()

    edit(folder, change)


def test_a_changed_start_id_is_named_with_both_digests_and_what_to_do(folder: Path) -> None:
    path = folder / "manifest.json"
    path.write_text(path.read_text().replace('"start_id": 0', '"start_id": 1'))
    with pytest.raises(
        DataError,
        match=r"manifest\.json: this file changed after it was written: its sha256 was [0-9a-f]{12} and is now "
        r"[0-9a-f]{12}\. Restore the file\. To make it again, remove its folder and prepare the text\.$",
    ):
        Prepared(folder)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (lambda fields: fields.update(start_id=-1), "start_id"),
        (lambda fields: fields.update(start_id=11), "start_id is 11, and the vocabulary has 11 ids"),
        (lambda fields: fields.update(start_id=True), "start_id"),
        (lambda fields: fields.update(fingerprint="z" * 64), "fingerprint"),
        (lambda fields: fields["tokenizer"].update(vocab_size=0), "tokenizer.vocab_size"),
        (lambda fields: fields["tokenizer"].update(vocab_size=1 << 40), "tokenizer.vocab_size"),
        (lambda fields: fields["tokenizer"].update(vocab_size="11"), "tokenizer.vocab_size"),
        (lambda fields: fields["tokenizer"].update(requested_vocab_size=-3), "tokenizer.requested_vocab_size"),
        (
            lambda fields: fields["tokenizer"].update(files={"../x": {"bytes": 1, "sha256": "0" * 64}}),
            "tokenizer.files",
        ),
        (lambda fields: fields["tokenizer"].update(files={"x": {"bytes": 1 << 40, "sha256": "0" * 64}}), "bytes"),
        (lambda fields: fields["train"].update(tokens=-1), "train.tokens"),
        (lambda fields: fields["train"].update(tokens=181), "train.tokens is 181, and its shards have 180"),
        (lambda fields: fields["train"].update(tokens=1 << 70), "train.tokens"),
        (lambda fields: fields["train"].update(documents=7), "train.documents is 7, and its shards have 1"),
        (lambda fields: fields["train"].update(shards=[]), "train.shards|train.tokens is 180, and its shards have 0"),
        (lambda fields: fields["train"].update(shards={}), "train.shards"),
        (lambda fields: fields["train"].update(shards=fields["val"]["shards"]), "train.shards are not the files"),
        (lambda fields: fields["val"].update(bytes=0), "val.bytes"),
        (lambda fields: fields["val"]["shards"][0].update(tokens=0), "val.shards.0.tokens"),
        (lambda fields: fields["val"]["shards"][0].update(documents=1 << 40), "val.shards.0.documents"),
        (lambda fields: fields["val"]["shards"][0].update(sha256="x" + "0" * 63), "val.shards.0.sha256"),
        (lambda fields: fields["val"]["shards"][0].update(index_sha256=None), "val.shards.0.index_sha256"),
        (lambda fields: fields["val"]["shards"][0].update(file="../../x"), "val.shards are not the files"),
        (lambda fields: fields.update(sources=fields["sources"] + ["x"]), "sources.1"),
        (lambda fields: fields.update(baselines=[]), "baselines"),
        (lambda fields: fields.update(more=1), "more"),
        (lambda fields: fields.pop("split_rule"), "split_rule"),
    ],
)
def test_an_odd_manifest_names_the_key_in_one_line(folder: Path, change: Change, key: str) -> None:
    edit(folder, change)
    with pytest.raises(DataError, match=rf"^[^\n]*manifest\.json: the prepared data is damaged: [^\n]*({key})[^\n]*$"):
        Prepared(folder)


@pytest.mark.parametrize(
    "content",
    [
        "[" * 100_000 + "]" * 100_000,
        '{"format_version": 1, "x": ' + "[" * 900 + "]" * 900 + "}",
        '{"format_version": 2, "sha256": "0", "x": ' + "[" * 900 + "]" * 900 + "}",
        '{"format_version": 2, "x": NaN}',
        '{"format_version": 1, "x": 1e999}',
        '{"format_version": 2, "x": ' + "9" * 5000 + "}",
        '{"format_version": {}}',
        '{"sha256": {}}',
    ],
)
def test_an_odd_json_file_is_one_line(folder: Path, content: str) -> None:
    (folder / "manifest.json").write_text(content)
    with pytest.raises(DataError, match=r"^[^\n]*manifest\.json: [^\n]{20,400}$"):
        Prepared(folder)


def test_numbers_that_are_not_finite_are_refused_in_a_manifest_without_a_seal(folder: Path) -> None:
    fields = json.loads((folder / "manifest.json").read_text()) | {"format_version": 1}
    del fields["sha256"], fields["tokenizer"]["files"]
    fields["baselines"]["xz"] = float("nan")
    (folder / "manifest.json").write_text(json.dumps(fields))
    with pytest.raises(DataError, match=r"damaged: baselines\.xz: "):
        Prepared(folder)


def test_ids_outside_the_vocabulary_are_refused_though_their_digest_fits(folder: Path) -> None:
    rewrite(folder, "val", [*range(19), 11], [0])
    with pytest.raises(DataError, match=r"val-00000\.bin: .* it has the id 18, and the vocabulary ends at 10\. "):
        Prepared(folder).verify()


@pytest.mark.parametrize("start", [20, 1 << 63])
def test_documents_that_begin_outside_the_shard_are_refused_though_the_digest_fits(folder: Path, start: int) -> None:
    rewrite(folder, "val", [0] * 20, [start])
    prepared = Prepared(folder)
    for read in (prepared.verify, lambda: prepared.document_lengths("val")):
        with pytest.raises(DataError, match=r"val-00000\.idx: .* it does not say where documents begin\. "):
            read()


def test_an_index_that_changed_after_opening_is_not_used(folder: Path) -> None:
    prepared = Prepared(folder)
    (folder / "train-00000.idx").write_bytes(bytes([1, *[0] * 7]))
    with pytest.raises(DataError, match=r"train-00000\.idx: .* its sha256 is "):
        prepared.document_lengths("train")


FILES = ["manifest.json", "train-00000.bin", "val-00000.idx", "tokenizer/tokenizer.json"]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_links_pipes_and_folders_are_refused_without_waiting(folder: Path, name: str, kind: str) -> None:
    path = folder / name
    moved = path.rename(folder / "moved")
    if kind == "link":
        path.symlink_to(moved)
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    with pytest.raises(StorageError, match=rf"^[^\n]*{name}: cannot read: [^\n]*$"):
        Prepared(folder).verify()


@pytest.mark.parametrize("name", FILES[1:])
def test_a_file_that_cannot_be_opened_is_a_storage_error(
    folder: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = checked_files.open_own

    def refuse(path: Path) -> io.BufferedReader:
        if path == folder / name:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return real(path)

    monkeypatch.setattr(checked_files, "open_own", refuse)
    with pytest.raises(StorageError, match=rf"^[^\n]*{name}: cannot read: Permission denied\. [^\n]*$"):
        Prepared(folder).verify()


def test_a_disk_that_fails_while_ids_are_verified_is_a_storage_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing(io.FileIO):
        def readinto(self, buffer: Any) -> int:
            if self.tell() > 0:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return super().readinto(memoryview(buffer)[:64])

    prepared = Prepared(folder)
    monkeypatch.setattr(checked_files, "open_own", lambda path: io.BufferedReader(Failing(path)))
    with pytest.raises(StorageError, match=r"train-00000\.bin: cannot read: Input/output error\. The disk reports"):
        prepared.verify()


def test_a_shard_that_is_cut_while_it_is_in_use_is_named(folder: Path) -> None:
    split = Prepared(folder).split("train")
    os.truncate(folder / "train-00000.bin", 64)
    with pytest.raises(DataError, match=r"train-00000\.bin: .* the file was cut while it was in use\. "):
        split.read(0, 10)
