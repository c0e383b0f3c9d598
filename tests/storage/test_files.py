"""File operations: each happens completely or raises an error that says why not."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gptlite.errors import StorageError
from gptlite.storage import files

REPLACE = ["open", "write", "_fsync", "replace", "open", "_fsync"]  # the temporary file, its name, the folder


def failing(at: int, number: int) -> tuple[Callable[..., Any], list[str]]:
    """A `syscall` that raises errno `number` at its `at`-th call and ever after, and the names of the calls made."""
    calls: list[str] = []

    def syscall(call: Callable[..., Any], *args: Any) -> Any:
        calls.append(call.__name__)
        if len(calls) > at:
            raise OSError(number, os.strerror(number))
        return call(*args)

    return syscall, calls


def test_write_new_returns_the_size_and_sha256_of_the_file(tmp_path: Path) -> None:
    pieces = [b"ab", bytearray(b"cd"), memoryview(b"e")]
    assert files.write_new(tmp_path / "f", pieces) == (5, hashlib.sha256(b"abcde").hexdigest())
    assert (tmp_path / "f").read_bytes() == b"abcde"


def test_write_new_refuses_a_taken_name_and_keeps_its_file(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"old")
    with pytest.raises(StorageError, match=r"f: cannot open for writing: File exists\. .*another name"):
        files.write_new(tmp_path / "f", b"new")
    assert (tmp_path / "f").read_bytes() == b"old"


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def one_byte_at_a_time(call: Callable[..., Any], *args: Any) -> Any:
        return os.write(args[0], args[1][:1]) if call is os.write else call(*args)

    monkeypatch.setattr(files, "syscall", one_byte_at_a_time)
    files.write_new(tmp_path / "f", b"abcdef")
    assert (tmp_path / "f").read_bytes() == b"abcdef"


def test_data_that_raises_half_way_leaves_no_file(tmp_path: Path) -> None:
    def pieces() -> Any:
        yield b"half"
        raise RuntimeError("source")

    with pytest.raises(RuntimeError, match="source"):
        files.replace(tmp_path / "f", pieces())
    assert list(tmp_path.iterdir()) == []


def test_replace_syncs_the_data_before_the_name_and_the_name_before_it_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syscall, calls = failing(99, 0)
    monkeypatch.setattr(files, "syscall", syscall)
    files.replace(tmp_path / "f", b"new")
    assert calls == REPLACE


@pytest.mark.parametrize("at", range(len(REPLACE)))
def test_replace_leaves_the_old_content_or_the_new_whichever_call_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old")
    with monkeypatch.context() as patch:
        patch.setattr(files, "syscall", failing(at, errno.ENOSPC)[0])
        with pytest.raises(StorageError, match="No space left") as failed:
            files.replace(path, b"new")
    assert str(failed.value).startswith(str(tmp_path))
    assert failed.value.exit_code == 4
    assert path.read_bytes() == (b"new" if at > REPLACE.index("replace") else b"old")


@pytest.mark.parametrize("opened", [files.OutFile.append, files.OutFile.create])
def test_a_failed_write_is_undone_and_the_next_one_appends_to_the_old_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: Callable[[Path], files.OutFile]
) -> None:
    def half_then_full(call: Callable[..., Any], *args: Any) -> Any:
        if call is os.write:
            os.write(args[0], args[1][:3])
            raise OSError(errno.ENOSPC, "")
        return call(*args)

    with opened(tmp_path / "f") as file:
        file.write(b"one\n")
        with monkeypatch.context() as patch:
            patch.setattr(files, "syscall", half_then_full)
            with pytest.raises(StorageError, match="No space left on device"):
                file.write(b"second\n")
        file.write(b"third\n")
    assert (tmp_path / "f").read_bytes() == b"one\nthird\n"


def test_publish_refuses_a_taken_name_even_that_of_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "a.tmp-1").mkdir()
    (tmp_path / "a").mkdir()
    with pytest.raises(StorageError, match="cannot rename: File exists"):
        files.publish(tmp_path / "a.tmp-1", tmp_path / "a")
    (tmp_path / "a").rmdir()
    files.publish(tmp_path / "a.tmp-1", tmp_path / "a")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_make_dirs_names_a_file_in_the_way(tmp_path: Path) -> None:
    files.make_dirs(tmp_path / "a" / "b")
    files.make_dirs(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"file: cannot create this folder: Not a directory"):
        files.make_dirs(tmp_path / "file" / "c")


def test_create_dir_succeeds_once_and_syncs_the_folder_that_holds_the_new_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[int, bool]] = []
    with monkeypatch.context() as patch:
        patch.setattr(files, "_fsync", lambda fd: synced.append((os.fstat(fd).st_ino, (tmp_path / "a").is_dir())))
        assert [files.create_dir(tmp_path / "a") for _ in range(2)] == [True, False]
    assert synced == [(tmp_path.stat().st_ino, True)]


def test_remove_tree_removes_links_but_not_their_targets(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").touch()
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "link").symlink_to(tmp_path / "kept")
    files.remove_tree(tmp_path / "a")
    files.remove_tree(tmp_path / "a")  # absent: nothing to do
    assert [path.name for path in tmp_path.rglob("*")] == ["kept", "file"]


def test_leftovers_of_an_interrupted_removal_are_marked_and_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").touch()
    syscall, _ = failing(3, errno.EIO)  # after the new name is durable
    with monkeypatch.context() as patch:
        patch.setattr(files, "syscall", syscall)
        with pytest.raises(StorageError, match="cannot remove: Input/output error"):
            files.remove_tree(tmp_path / "a")
    assert not (tmp_path / "a").exists()
    assert len(files.remove_leftovers(tmp_path)) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("opened", [files.OutFile.append, files.OutFile.create])
def test_nothing_is_written_through_a_link(tmp_path: Path, opened: Callable[[Path], files.OutFile]) -> None:
    (tmp_path / "victim").write_bytes(b"precious")
    (tmp_path / "f").symlink_to(tmp_path / "victim")
    with pytest.raises(StorageError, match="cannot open for writing"):
        opened(tmp_path / "f")
    assert (tmp_path / "victim").read_bytes() == b"precious"
