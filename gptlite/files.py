"""File operations that survive a kill, a full disk and a power cut: what every writer of this project uses.

Whoever finds a file under its final name finds all of it: data goes to a name that holds `.tmp-`, is fsynced, and is
renamed. An OSError becomes a StorageError naming the path, the operation and the system's reason. Branches on the
platform live only here, and every call that changes the disk goes through `syscall`, which tests replace.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import secrets
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from gptlite.errors import RunError, StorageError

if sys.platform != "win32":
    import fcntl

T = TypeVar("T")
Data: TypeAlias = bytes | bytearray | memoryview

TEMP_MARK = ".tmp-"
_PIECE = 8 << 20  # bytes per write call
_WRITE = os.O_WRONLY | os.O_CREAT | getattr(os, "O_BINARY", 0)

_ADVICE = {
    errno.ENOSPC: "the disk or your share of it is full; free some space, then try again",
    errno.EFBIG: "the system's limit on file size is reached; raise it (ulimit -f), then try again",
    errno.EACCES: "a writable place is needed; change its permissions or choose another folder",
    errno.EEXIST: "something of that name exists already; move it away or choose another name",
    errno.ENAMETOOLONG: "the name is too long for this file system; choose a shorter one",
    errno.EIO: "the disk reports a fault; check it or choose another folder",
}
_ADVICE |= dict.fromkeys((errno.EPERM, errno.EROFS), _ADVICE[errno.EACCES])
_ADVICE |= dict.fromkeys((errno.ENOTDIR, errno.EISDIR, errno.ENOTEMPTY), _ADVICE[errno.EEXIST])
_ADVICE[getattr(errno, "EDQUOT", errno.ENOSPC)] = _ADVICE[errno.ENOSPC]


def syscall(call: Callable[..., T], *args: Any) -> T:
    """The one door to the disk: `call(*args)`."""
    return call(*args)


def _try_to(call: Callable[..., None], *args: Any) -> None:
    with contextlib.suppress(OSError):  # tidying up after an error: that first one is the one to report
        syscall(call, *args)


@contextlib.contextmanager
def storage_errors(path: Path, what: str) -> Iterator[None]:
    """Turn an OSError inside the block into a StorageError: `what` (a verb) failed on `path`."""
    try:
        yield
    except OSError as error:
        advice = _ADVICE.get(error.errno or 0, "the system refused it; mend the cause, then try again")
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise StorageError(f"{path}: {what} = {reason}: {advice}") from error


def temp_name(path: Path) -> Path:
    """A fresh name beside `path`, marked as unfinished; `remove_leftovers` finds what a killed process left there."""
    return path.with_name(f"{path.name}{TEMP_MARK}{os.getpid()}-{secrets.token_hex(4)}")


def sha256_of(path: Path) -> str:
    """Hex digest of a file's content; a StorageError when it cannot be read."""
    with storage_errors(path, "read"), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class OutFile(contextlib.AbstractContextManager["OutFile"]):
    """An unbuffered file for writing: what `write` returned from is with the operating system, and survives a kill.

    Made by `create` or `append`. Closing does not sync: call `sync` where a power cut must not lose data.
    """

    def __init__(self, path: Path, flags: int) -> None:
        self.path = path
        with storage_errors(path, "open for writing"):
            self._fd = syscall(os.open, path, flags, 0o666)

    @classmethod
    def create(cls, path: Path) -> OutFile:
        """A new file; a StorageError when the name is taken."""
        return cls(path, _WRITE | os.O_EXCL)

    @classmethod
    def append(cls, path: Path) -> OutFile:
        """A file whose every write lands at its end."""
        return cls(path, _WRITE | os.O_APPEND)

    def write(self, data: Data) -> None:
        """All of `data`, or a StorageError and nothing of it (as far as the disk still lets us take it back)."""
        before = os.fstat(self._fd).st_size
        with storage_errors(self.path, "write"):
            try:
                self._write_all(data)
            except OSError:
                _try_to(os.ftruncate, self._fd, before)
                os.lseek(self._fd, 0, os.SEEK_END)
                raise

    def overwrite(self, offset: int, data: Data) -> None:
        """Put `data` at byte `offset` of a file made by `create`: a header that is known only at the end, say."""
        with storage_errors(self.path, "write"):
            os.lseek(self._fd, offset, os.SEEK_SET)
            self._write_all(data)
            os.lseek(self._fd, 0, os.SEEK_END)

    def _write_all(self, data: Data) -> None:
        left = memoryview(data).cast("B")
        while left:
            left = left[syscall(os.write, self._fd, left[:_PIECE]) :]

    def sync(self) -> None:
        """Return when the content would survive a power cut."""
        with storage_errors(self.path, "sync"):
            syscall(_fsync, self._fd)

    def close(self) -> None:
        """Release the file; a second call does nothing."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with storage_errors(self.path, "close"):
                os.close(fd)

    def __exit__(self, *_: object) -> None:
        self.close()


def _fsync(fd: int) -> None:
    os.fsync(fd)
    if sys.platform == "darwin":  # fsync alone leaves the data in the drive's cache there
        with contextlib.suppress(OSError):  # not every volume has it, and fsync has succeeded
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)


def write_new(path: Path, data: Data | Iterable[Data]) -> tuple[int, str]:
    """Create `path`, write all of `data` and sync it; its size in bytes and sha256.

    A StorageError when the name is taken; after any other failure it is free again.
    """
    pieces = (data,) if isinstance(data, bytes | bytearray | memoryview) else data
    size, digest = 0, hashlib.sha256()
    with OutFile.create(path) as file:
        try:
            for piece in pieces:
                digest.update(piece)
                file.write(piece)
                size += memoryview(piece).nbytes
            file.sync()
        except BaseException:
            _try_to(os.unlink, path)
            raise
    return size, digest.hexdigest()


def replace(path: Path, data: Data) -> None:
    """Give `path` new content in one instant: a reader sees the old or the new, and a power cut keeps one of them."""
    temp = temp_name(path)
    write_new(temp, data)
    with storage_errors(path, "replace"):
        try:
            syscall(os.replace, temp, path)
        except OSError:
            _try_to(os.unlink, temp)
            raise
    sync_dir(path.parent)


def publish(tmp: Path, final: Path) -> None:
    """Rename a finished folder (or a synced file) to its final, still free name; durable when this returns."""
    if tmp.is_dir():
        sync_dir(tmp)
    with storage_errors(final, "rename"):
        if os.path.lexists(final):  # a rename onto an empty folder, or onto a file, would succeed
            raise FileExistsError(errno.EEXIST, "")
        syscall(os.rename, tmp, final)
    sync_dir(final.parent)


def sync_dir(path: Path) -> None:
    """Return when the names in a folder would survive a power cut."""
    if sys.platform == "win32":
        return  # a folder cannot be opened there; NTFS journals its names itself
    with storage_errors(path, "sync"):
        fd = syscall(os.open, path, os.O_RDONLY)
        try:
            syscall(_fsync, fd)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems know no such operation
                raise
        finally:
            os.close(fd)


def create_dir(path: Path) -> bool:
    """Make one folder, durably: False when the name was taken. Of processes that race for it, one gets True."""
    with storage_errors(path, "create folder"):
        try:
            syscall(os.mkdir, path)
        except FileExistsError:
            return False
    sync_dir(path.parent)
    return True


def make_dirs(path: Path) -> None:
    """Make a folder and those above it, durably, where they are missing."""
    with storage_errors(path, "create folder"):
        if path.is_dir():
            return
        make_dirs(path.parent)
        if not (create_dir(path) or path.is_dir()):
            raise NotADirectoryError(errno.ENOTDIR, "")


def remove_tree(path: Path) -> None:
    """Remove a folder or a file, if it is there; links are removed, never followed.

    It loses its name first: whatever a kill leaves of it is marked as unfinished.
    """
    with storage_errors(path, "remove"):
        if not os.path.lexists(path):
            return
        doomed = path
        if TEMP_MARK not in path.name:
            doomed = temp_name(path)
            syscall(os.rename, path, doomed)
            sync_dir(path.parent)
        _remove(doomed)


def _remove(path: Path) -> None:
    if path.is_symlink() or not path.is_dir():
        return syscall(os.unlink, path)
    for entry in sorted(path.iterdir()):
        _remove(entry)
    return syscall(os.rmdir, path)


def remove_leftovers(folder: Path) -> list[Path]:
    """Remove what killed writers left in `folder`: every name with `.tmp-`. For the holder of its lock only."""
    found = sorted(folder.glob(f"*{TEMP_MARK}*"))
    for path in found:
        remove_tree(path)
    return found


@contextlib.contextmanager
def lock(path: Path, holder: str) -> Iterator[None]:
    """Hold `path` as the only process; `holder` says in one or two words what for.

    A RunError at once, naming the holder's pid, host and start, when a process (this one too) has it. The kernel gives
    the lock back when its process dies, however it dies; the file stays.
    """
    fd = _open_lock(path)
    try:
        since = datetime.now().astimezone().isoformat(timespec="seconds")
        record = {"holder": holder, "pid": os.getpid(), "host": socket.gethostname(), "since": since}
        with storage_errors(path, "write"):
            syscall(os.ftruncate, fd, 0)
            syscall(os.write, fd, json.dumps(record).encode())
        yield
    finally:
        os.close(fd)


def _open_lock(path: Path) -> int:
    if sys.platform == "win32":
        raise RunError(
            f"{path}: platform = {sys.platform}: training needs file locks that end with their process; "
            "use Linux or macOS (WSL works)"
        )
    with storage_errors(path, "lock"):
        fd = syscall(os.open, path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            _take(fd)
        except OSError as error:
            record = os.read(fd, 4096)
            os.close(fd)
            raise _taken(path, record) if isinstance(error, BlockingIOError) else error from None
        return fd


def _take(fd: int) -> None:
    for _ in range(4):  # whoever asks with `locked` is in the way for an instant
        with contextlib.suppress(BlockingIOError):
            return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        time.sleep(0.005)
    return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def locked(path: Path) -> bool:
    """Whether a process holds `lock(path)`: asked with a shared lock, which its holder does not notice."""
    if sys.platform == "win32" or not path.exists():
        return False
    with storage_errors(path, "read"), path.open("rb") as file, contextlib.suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    return True


def _taken(path: Path, record: bytes) -> RunError:
    try:
        who = "{holder}, pid {pid} on {host} since {since}".format_map(json.loads(record))
    except (ValueError, KeyError, TypeError):
        who = "another process"  # it has the lock and has not yet written who it is
    return RunError(f"{path}: lock = held by {who}: one process at a time; wait for it or stop it")
