"""Locks: one process at a time may change a run or a prepared folder. The system releases them when a process ends."""

from __future__ import annotations

import contextlib
import json
import math
import os
import socket
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from gptlite.errors import RunError
from gptlite.formatting import Say
from gptlite.storage import files
from gptlite.storage.files import storage_errors

_PLAIN = getattr(os, "O_NOFOLLOW", 0)  # the record must not overwrite what a link points to
_RETRY_SECONDS = 1.0  # `locked()` has the lock for an instant
_MAX_RECORD_BYTES = 4096
_POLL_SECONDS = 0.02


@contextlib.contextmanager
def lock(path: Path, holder: str, say: Say | None = None) -> Iterator[None]:
    """Hold an exclusive lock. `holder` tells others which command has it.

    Raise RunError when any process has it for a second, even this one, and on Windows; StorageError where the file
    system has no locks. With `say`, which gets a line about that, wait for it; its folder is made.
    """
    if sys.platform == "win32":
        raise RunError(
            "gptlite prepares and trains nothing on Windows yet, since nobody has tested it there. Use Linux or macOS; "
            "WSL works.",
            str(path),
        )
    fd = _open_locked(path, say)
    try:
        since = datetime.now().astimezone().isoformat(timespec="seconds")
        record = {"holder": holder, "pid": os.getpid(), "host": socket.gethostname(), "since": since}
        with storage_errors(path, "write"):
            files.syscall(os.ftruncate, fd, 0)
            files.syscall(os.write, fd, json.dumps(record).encode())
        yield
    finally:
        os.close(fd)


def _open_locked(path: Path, say: Say | None) -> int:
    """Open and lock the file of this name, again where it was removed or replaced before it was locked."""
    give_up_at = time.monotonic() + _RETRY_SECONDS
    while True:
        if say is not None:
            files.make_dirs(path.parent)  # each time: the process that has the lock may remove it at its end
        with storage_errors(path, "lock"):
            fd = files.syscall(os.open, path, os.O_RDWR | os.O_CREAT | _PLAIN, 0o666)
        try:
            if _take(fd, path):
                if _has_name(fd, path):
                    return fd
            elif time.monotonic() > give_up_at:
                held = RunError(f"held by {_holder(fd)}. Wait for it, or stop it.", str(path))
                if say is None:
                    raise held
                say(f"waiting: {held}")
                give_up_at = math.inf
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)
        time.sleep(_POLL_SECONDS)


def _take(fd: int, path: Path) -> bool:
    """Take the lock of an open file if it is free. Raise StorageError where the file system has none."""
    from filelock import lock_descriptor  # unlike FileLock it never makes do with a file that outlives its process

    with storage_errors(path, "lock"):
        return lock_descriptor(fd, blocking=False)


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
    """Return whether a process has `lock(path)`. To ask takes it for an instant, for which `lock` and `locked` wait."""
    if sys.platform == "win32":
        return False
    with storage_errors(path, "read"), contextlib.ExitStack() as opened:
        access = os.O_RDWR if os.access(path, os.W_OK) else os.O_RDONLY  # NFS locks only what is open for writing
        try:
            fd = os.open(path, access | _PLAIN)
        except FileNotFoundError:
            return False
        opened.callback(os.close, fd)
        for _ in range(3):  # another that asks has the lock for an instant, too
            if _take(fd, path):
                return False
            time.sleep(_POLL_SECONDS)
        return True
