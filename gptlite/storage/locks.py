"""Locks: one process at a time may change a run or a prepared folder. The kernel releases them when a process ends."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import socket
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from gptlite.errors import RunError, StorageError
from gptlite.formatting import Say
from gptlite.storage import files
from gptlite.storage.files import open_own, storage_errors

if sys.platform != "win32":
    import fcntl

_OPEN = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS)
_READER_SECONDS = 60.0  # how long a program that only reads the lock is waited for
_MAX_RECORD_BYTES = 4096
_POLL_SECONDS = 0.2


class HeldError(RunError):
    """Another process has the lock."""


@contextlib.contextmanager
def lock(path: Path, holder: str) -> Iterator[None]:
    """Hold an exclusive lock. `holder` tells others which command has it.

    Raise HeldError at once when any process has it, even this one; StorageError where the file system has no locks,
    RunError on Windows, whose locks gptlite does not use yet.
    """
    if sys.platform == "win32":
        raise RunError(
            "gptlite does not lock files on Windows yet, so it prepares and trains nothing there. Use Linux or macOS; "
            "WSL works.",
            str(path),
        )
    fd = _open_locked(path)
    try:
        since = datetime.now().astimezone().isoformat(timespec="seconds")
        record = {"holder": holder, "pid": os.getpid(), "host": socket.gethostname(), "since": since}
        with storage_errors(path, "write"):
            files.syscall(os.ftruncate, fd, 0)
            files.syscall(os.write, fd, json.dumps(record).encode())
        yield
    finally:
        os.close(fd)


@contextlib.contextmanager
def wait_for_lock(path: Path, holder: str, report: Say) -> Iterator[None]:
    """As `lock`, but wait while another process has it; `report` gets a line about that. Its folder is made."""
    with contextlib.ExitStack() as held:
        waiting = False
        while True:
            try:
                files.make_dirs(path.parent)  # each time: the process that has the lock may remove it at its end
                held.enter_context(lock(path, holder))
                break
            except HeldError as error:
                if not waiting:
                    report(f"waiting: {error}")
                waiting = True
                time.sleep(_POLL_SECONDS)
        yield


def _open_locked(path: Path) -> int:
    """Open and lock the file of this name, again where it was removed or replaced before it was locked."""
    while True:
        with storage_errors(path, "lock"):
            fd = files.syscall(os.open, path, _OPEN, 0o666)
        try:
            _lock(fd, path)
            if _has_name(fd, path):
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


def _lock(fd: int, path: Path) -> None:
    """Take the exclusive lock. `locked()` takes a shared lock briefly; wait for it."""
    give_up_at = time.monotonic() + _READER_SECONDS
    while not _flock(fd, fcntl.LOCK_EX, path):
        if not _flock(fd, fcntl.LOCK_SH, path):
            raise HeldError(f"held by {_holder(fd)}. Wait for it, or stop it.", str(path))
        fcntl.flock(fd, fcntl.LOCK_UN)
        if time.monotonic() > give_up_at:
            raise HeldError("another program has this file locked for reading. Wait for it, or stop it.", str(path))
        time.sleep(random.uniform(0.001, 0.01))  # two that try at once must not stay in step


def _flock(fd: int, kind: int, path: Path) -> bool:
    """Whether a lock was free. Raise StorageError where the file system has none."""
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            with storage_errors(path, "lock"):
                raise
        raise StorageError(
            "this file system has no file locks, without which two trainings could damage a run. Use a folder on "
            "another file system.",
            str(path),
        ) from error


def _has_name(fd: int, path: Path) -> bool:
    try:
        named = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(named, os.fstat(fd))


def _holder(fd: int) -> str:
    try:
        record = json.loads(os.pread(fd, _MAX_RECORD_BYTES, 0))
        return "{holder}, pid {pid} on {host} since {since}".format_map(record)
    except (ValueError, KeyError, TypeError, RecursionError):
        return "another process"  # which has not written its record yet


def locked(path: Path) -> bool:
    """Whether a process holds `lock(path)`. Asking takes a shared lock for an instant, which refuses nobody."""
    if sys.platform == "win32":
        return False
    with storage_errors(path, "read"):
        try:
            with open_own(path) as file:
                return not _flock(file.fileno(), fcntl.LOCK_SH, path)
        except FileNotFoundError:
            return False
