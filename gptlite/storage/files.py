"""File operations that survive a kill, a full disk and a power cut: atomic writes, fsync, renames.

A file under its final name is always complete: data is written under a name with `.tmp-`, synced, then renamed.
An OSError becomes a StorageError with the path, the operation and the system's reason. Nothing is written through a
link. Every call that changes the disk goes through `syscall`, which tests replace. Only this file
and locks.py branch on the platform.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from gptlite.errors import StorageError

if sys.platform != "win32":
    import fcntl

T = TypeVar("T")
Data: TypeAlias = bytes | bytearray | memoryview

TEMP_MARK = ".tmp-"
_PIECE = 8 << 20  # bytes per write call
_WRITE = os.O_WRONLY | os.O_CREAT | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOFOLLOW", 0)

_ADVICE = {
    errno.ENOSPC: "The disk or your quota is full; free some space, then try again.",
    errno.EFBIG: "The system limits the size of files; raise the limit (ulimit -f), then try again.",
    errno.EACCES: "Change its permissions or choose another folder.",
    errno.ENOENT: "Check the path.",
    errno.EEXIST: "Move away what has this name, or choose another name.",
    errno.ENAMETOOLONG: "Choose a shorter name.",
    errno.EIO: "The disk reports a fault; check it or choose another folder.",
    errno.ELOOP: "Put the file itself in the place of the link.",
}
_ADVICE |= dict.fromkeys((errno.EPERM, errno.EROFS), _ADVICE[errno.EACCES])
_ADVICE |= dict.fromkeys((errno.ENOTDIR, errno.EISDIR, errno.ENOTEMPTY), _ADVICE[errno.EEXIST])
_ADVICE |= dict.fromkeys(
    (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS),
    "This file system has no file locks, without which two trainings could damage a run; use a folder on another one.",
)
_ADVICE[getattr(errno, "EDQUOT", errno.ENOSPC)] = _ADVICE[errno.ENOSPC]


def syscall(call: Callable[..., T], *args: Any) -> T:
    """Return `call(*args)`. Every change to the disk is made here, so that tests can inject faults."""
    return call(*args)


@contextlib.contextmanager
def storage_errors(path: Path, action: str) -> Iterator[None]:
    """Turn an OSError raised inside into a StorageError that says on which path which action (a verb) failed."""
    try:
        yield
    except OSError as error:
        number = error.errno or 0
        reason = error.strerror or (os.strerror(number) if number else str(error))
        advice = _ADVICE.get(number, "Fix the cause, then try again.")
        raise StorageError(f"cannot {action}: {reason}. {advice}", where=str(path)) from error


def temp_name(path: Path) -> Path:
    """Return an unused name beside `path` that marks a file as unfinished; `remove_leftovers` finds such files."""
    return path.with_name(f"{path.name}{TEMP_MARK}{os.getpid()}-{secrets.token_hex(4)}")


class OutFile(contextlib.AbstractContextManager["OutFile"]):
    """An unbuffered file for writing. Written data survives a kill; after `sync` it also survives a power cut."""

    def __init__(self, path: Path, flags: int) -> None:
        self.path = path
        with storage_errors(path, "open for writing"):
            self._fd = syscall(os.open, path, flags, 0o666)

    @classmethod
    def create(cls, path: Path) -> OutFile:
        """Create a file. Raise StorageError when the name is taken."""
        return cls(path, _WRITE | os.O_EXCL)

    @classmethod
    def append(cls, path: Path) -> OutFile:
        """Open or create a file to which every write is appended."""
        return cls(path, _WRITE | os.O_APPEND)

    def write(self, data: Data) -> None:
        """Write all of `data`. Raise StorageError and truncate the file to its old size when that fails."""
        before = os.fstat(self._fd).st_size
        with storage_errors(self.path, "write"):
            try:
                left = memoryview(data).cast("B")
                while left:
                    left = left[syscall(os.write, self._fd, left[:_PIECE]) :]
            except OSError:
                with contextlib.suppress(OSError):  # the first error is reported
                    syscall(os.ftruncate, self._fd, before)
                os.lseek(self._fd, 0, os.SEEK_END)
                raise

    def sync(self) -> None:
        """Return when the content is durable."""
        with storage_errors(self.path, "sync"):
            syscall(_fsync, self._fd)

    def close(self) -> None:
        """Close the file without syncing it. A second call does nothing."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with storage_errors(self.path, "close"):
                os.close(fd)

    def __exit__(self, *_: object) -> None:
        self.close()


def _fsync(fd: int) -> None:
    os.fsync(fd)
    if sys.platform == "darwin":  # where fsync leaves the data in the drive's cache
        with contextlib.suppress(OSError):  # some volumes do not support it
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)


def write_new(path: Path, data: Data | Iterable[Data]) -> tuple[int, str]:
    """Create `path` with this content, durably. Return its size in bytes and its sha256.

    Raise StorageError when the name is taken.
    """
    pieces = (data,) if isinstance(data, bytes | bytearray | memoryview) else data
    size, digest = 0, hashlib.sha256()
    with OutFile.create(path) as file:
        for piece in pieces:
            digest.update(piece)
            file.write(piece)
            size += memoryview(piece).nbytes
        file.sync()
    return size, digest.hexdigest()


def replace(path: Path, data: Data | Iterable[Data]) -> None:
    """Replace the content of `path` atomically and durably: readers and power cuts leave the old or the new."""
    with removed_on_error(temp_name(path)) as temp:
        write_new(temp, data)
        move(temp, path)


def move(temp: Path, path: Path) -> None:
    """Rename a synced file durably. A file of that name is replaced."""
    with storage_errors(path, "replace"):
        syscall(os.replace, temp, path)
    sync_dir(path.parent)


def publish(tmp: Path, final: Path) -> None:
    """Rename a finished folder, or a synced file, durably. Raise StorageError when the final name is taken."""
    if tmp.is_dir():
        sync_dir(tmp)
    with storage_errors(final, "rename"):
        if os.path.lexists(final):  # os.rename replaces files and empty folders
            raise FileExistsError(errno.EEXIST, "")
        syscall(os.rename, tmp, final)
    sync_dir(final.parent)


def sync_dir(path: Path) -> None:
    """Return when the names in a folder are durable."""
    if sys.platform == "win32":
        return  # folders cannot be opened, and NTFS journals their names
    with storage_errors(path, "sync"):
        fd = syscall(os.open, path, os.O_RDONLY)
        try:
            syscall(_fsync, fd)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # not supported by some network file systems
                raise
        finally:
            os.close(fd)


def create_dir(path: Path) -> bool:
    """Make a folder durably. Return False when the name was taken; of several processes, one gets True."""
    with storage_errors(path, "create this folder"):
        try:
            syscall(os.mkdir, path)
        except FileExistsError:
            return False
    sync_dir(path.parent)
    return True


def make_dirs(path: Path) -> None:
    """Make a folder and its missing parents durably."""
    with storage_errors(path, "create this folder"):
        if path.is_dir():
            return
        make_dirs(path.parent)
        if not (create_dir(path) or path.is_dir()):
            raise NotADirectoryError(errno.ENOTDIR, "")


def remove_tree(path: Path) -> None:
    """Remove a folder or a file if it exists. Links are removed, never followed.

    It is renamed first, so that what a kill leaves of it is marked as unfinished.
    """
    with storage_errors(path, "remove"):
        if not os.path.lexists(path):
            return
        doomed = path
        if TEMP_MARK not in path.name:
            doomed = temp_name(path)
            syscall(os.rename, path, doomed)
            sync_dir(path.parent)
        is_folder = doomed.is_dir() and not doomed.is_symlink()
        syscall(shutil.rmtree if is_folder else os.unlink, doomed)


@contextlib.contextmanager
def removed_on_error(path: Path, kind: type[BaseException] = BaseException) -> Iterator[Path]:
    """Remove a file or folder that is unfinished when an error of this kind is raised inside."""
    try:
        yield path
    except kind:
        with contextlib.suppress(StorageError):  # the first error is reported
            remove_tree(path)
        raise


def remove_leftovers(folder: Path) -> list[Path]:
    """Remove and return what killed processes left in `folder`. Call it only while holding the folder's lock."""
    for path in (found := sorted(folder.glob(f"*{TEMP_MARK}*"))):
        remove_tree(path)
    return found
