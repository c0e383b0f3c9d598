"""Locks: one holder at a time, named to the others, whatever happens to the file."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from gptlite.errors import RunError, StorageError
from gptlite.storage import locks

HOLDER = """
import sys, time
from pathlib import Path
from gptlite.storage import locks
with locks.lock(Path(sys.argv[1]), "gptlite train"):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_lock_of_another_process_is_refused_in_seconds_and_released_when_it_dies(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, path], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    with holder:
        assert holder.stdout.readline() == "held\n"
        assert locks.locked(path)
        started_at = time.perf_counter()
        who = rf"\.lock: held by gptlite train, pid {holder.pid} on {os.uname().nodename} since 20\d\d-.*\. Wait for it"
        with pytest.raises(RunError, match=who), locks.lock(path, "gptlite train"):
            pass
        assert 1 <= time.perf_counter() - started_at < 5
        holder.send_signal(signal.SIGKILL)
    with locks.lock(path, "gptlite train"):
        pass


def test_a_process_cannot_take_a_lock_twice(tmp_path: Path) -> None:
    with (
        locks.lock(tmp_path / "l", "first"),
        pytest.raises(RunError, match=f"held by first, pid {os.getpid()}"),
        locks.lock(tmp_path / "l", "second"),
    ):
        pass


def test_asking_whether_a_lock_is_held_does_not_hold_it(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    assert not locks.locked(path)
    assert not path.exists()
    with locks.lock(path, "first"):
        assert locks.locked(path)
    path.chmod(0o400)  # a run of somebody else
    assert not locks.locked(path)


def test_who_only_asks_keeps_no_start_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / ".lock"
    path.touch()
    with path.open("rb") as asking:
        fcntl.flock(asking, fcntl.LOCK_EX)
        monkeypatch.setattr("time.sleep", lambda seconds: fcntl.flock(asking, fcntl.LOCK_UN))
        assert not locks.locked(path)  # nor does it look like a process that trains
        fcntl.flock(asking, fcntl.LOCK_EX)
        with locks.lock(path, "starts"):
            assert locks.locked(path)


def test_a_lock_whose_file_was_removed_before_it_was_locked_is_taken_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, flock = tmp_path / ".lock", fcntl.flock

    def remove_first(fd: int, kind: int) -> None:
        monkeypatch.setattr(fcntl, "flock", flock)
        path.unlink()
        flock(fd, kind)

    monkeypatch.setattr(fcntl, "flock", remove_first)
    with locks.lock(path, "first"):
        assert locks.locked(path)  # a lock on the removed file would not be found here


def test_a_lock_that_is_a_link_is_refused_and_what_it_points_to_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("precious")
    (tmp_path / ".lock").symlink_to(tmp_path / "victim")
    with (
        pytest.raises(StorageError, match=r"\.lock: cannot lock: Too many levels of symbolic links\. Put the file"),
        locks.lock(tmp_path / ".lock", "x"),
    ):
        pass
    with pytest.raises(StorageError, match="Too many levels of symbolic links"):
        locks.locked(tmp_path / ".lock")
    assert (tmp_path / "victim").read_text() == "precious"


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_named_and_no_soft_lock_takes_their_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def flock(fd: int, kind: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(StorageError, match="This file system has no file locks"), locks.lock(tmp_path / ".lock", "x"):
        pass


def test_windows_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(RunError, match=r"on Windows yet, since nobody has tested it"), locks.lock(tmp_path / "l", "x"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_waiting_is_said_once_however_long_it_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "_RETRY_SECONDS", 0.05)
    path, lines = tmp_path / ".lock", list[str]()
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, path], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    with holder:
        assert holder.stdout.readline() == "held\n"
        threading.Timer(0.6, holder.kill).start()
        with locks.lock(path, "gptlite prepare", lines.append):
            pass
    assert len(lines) == 1
