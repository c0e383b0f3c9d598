"""Every byte of a sealed folder counts, and nothing else is read."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from dataclasses import asdict
from pathlib import Path

import pytest
from file_faults import stop_after

from gptlite.errors import Damaged, RunError, StorageError
from gptlite.storage import files
from gptlite.storage.sealed import (
    FORMAT_VERSION,
    MANIFEST,
    SealedFolder,
    dump_json,
    dump_sealed,
    write_file,
    write_folder,
)

ADVICE = "Make it anew."


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "below").mkdir()
    contents = {"a.bin": b"abc", "below/b.json": b"{}"}
    written = {name: asdict(write_file(tmp_path, name, data)) for name, data in contents.items()}
    (tmp_path / MANIFEST).write_bytes(dump_sealed({"step": 3, "files": written}))
    return tmp_path


def test_a_folder_is_read_as_it_was_written(folder: Path) -> None:
    opened = SealedFolder.open(folder, ADVICE)
    assert opened.fields == {"step": 3}
    assert opened.read("a.bin") == b"abc"
    assert opened.read_json("below/b.json") == {}
    assert opened.files["a.bin"].sha256 == hashlib.sha256(b"abc").hexdigest()
    for name in opened.files:
        opened.check(name)


def test_each_changed_byte_is_found(folder: Path) -> None:
    for path in (folder / MANIFEST, folder / "a.bin", folder / "below/b.json"):
        content = path.read_bytes()
        for at in range(len(content)):
            path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
            with pytest.raises(Damaged):
                check(folder)
            with pytest.raises(Damaged):
                SealedFolder.open(folder, ADVICE).read(path.relative_to(folder).as_posix())
        path.write_bytes(content)
        check(folder)


CHANGES = [os.unlink, lambda path: os.truncate(path, 1), lambda path: path.write_bytes(path.read_bytes() + b"!")]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", [MANIFEST, "a.bin", "below/b.json"])
def test_a_missing_a_cut_and_a_longer_file_are_found_at_once(folder: Path, name: str, change: object) -> None:
    change(folder / name)  # type: ignore[operator]
    with pytest.raises(Damaged) as error:
        SealedFolder.open(folder, ADVICE)
    assert error.value.problems[0].where == str(folder / name)


def test_another_version_is_refused_by_name_even_if_its_seal_is_right(folder: Path) -> None:
    fields = json.loads((folder / MANIFEST).read_bytes()) | {"format_version": FORMAT_VERSION + 1}
    del fields["sha256"]
    fields["sha256"] = hashlib.sha256(dump_json(fields)).hexdigest()
    (folder / MANIFEST).write_bytes(dump_json(fields))
    with pytest.raises(RunError, match=f"its format is {FORMAT_VERSION + 1}") as error:
        SealedFolder.open(folder, ADVICE)
    assert not isinstance(error.value, Damaged), "so that nobody falls back to an older folder"


@pytest.mark.parametrize("name", ["../a", "/a", "a/../b", ".a", "a//b", "", "a/", "a\\b"])
def test_a_manifest_with_names_outside_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / MANIFEST).write_bytes(dump_sealed({"files": {name: {"size": 0, "sha256": ""}}}))
    with pytest.raises(Damaged, match="it names a file outside its folder"):
        SealedFolder.open(tmp_path, ADVICE)


def test_a_file_that_the_manifest_does_not_list_is_not_read(folder: Path) -> None:
    (folder / "c.bin").touch()
    with pytest.raises(Damaged, match=r"c\.bin: MANIFEST\.json does not list this file"):
        SealedFolder.open(folder, ADVICE).read("c.bin")


def test_a_folder_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a kill and a power cut: tests/runs/test_checkpoint_faults.py."""
    write_folder(tmp_path / "f", {"step": 1}, [("a", b"old")])
    for operations in range(12):
        with monkeypatch.context() as patch:
            stop_after(operations, patch, OSError(errno.ENOSPC, "No space left on device"))
            with pytest.raises(StorageError, match="No space left"):
                write_folder(tmp_path / "f", {"step": 2}, [("a", b"new"), ("b", b"")])
        files.remove_leftovers(tmp_path)
        assert SealedFolder.open(tmp_path / "f", ADVICE).read("a") == b"old"
    write_folder(tmp_path / "f", {"step": 2}, [("a", b"new")])
    assert SealedFolder.open(tmp_path / "f", ADVICE).fields == {"step": 2}
    assert [path.name for path in tmp_path.iterdir()] == ["f"]


def check(folder: Path) -> None:
    opened = SealedFolder.open(folder, ADVICE)
    for name in opened.files:
        opened.check(name)
