"""Runs in processes of their own, some at a time: memory and failures of one stay away from the others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gptlite import files
from gptlite.cli.sweep.sweep_runs import SweepRun
from gptlite.compute.threads import VARIABLE
from gptlite.errors import Interrupted, StorageError
from gptlite.training.signals import Signals

POLL = 0.1  # seconds between looks at the processes
PIECE = 1 << 16  # bytes
STOPPED = (130, 143)  # exit codes of runs that a signal stopped


class Report(Protocol):
    """Someone who is told how it goes."""

    def started(self, task: SweepRun) -> None:
        """A process has begun to train it."""

    def said(self, task: SweepRun, line: str) -> None:
        """Its process wrote a line on standard error, which nobody has seen."""

    def ended(self, task: SweepRun, code: int) -> None:
        """Its process has left."""

    def waits(self, task: SweepRun) -> None:
        """It is trained by a process that is not ours, and nothing else is left to do."""

    def look(self) -> None:
        """Some time has passed."""


@dataclass
class Worker:
    """A process that trains one run."""

    task: SweepRun
    process: subprocess.Popen[bytes]
    stderr: int | None = None  # the file that it writes to; None: the terminal
    n_read: int = 0

    def new_lines(self) -> list[str]:
        """What it has written on standard error since the last call."""
        if self.stderr is None:
            return []
        # pread: the position in the file is shared with the child, who writes there.
        piece = os.pread(self.stderr, PIECE, self.n_read)
        whole = piece[: piece.rfind(b"\n") + 1]
        self.n_read += len(whole)
        return whole.decode(errors="replace").splitlines()

    def close(self) -> None:
        """Let go of its file."""
        if self.stderr is not None:
            os.close(self.stderr)


def start(task: SweepRun, options: Sequence[str], *, threads: int, to_terminal: bool) -> Worker:
    """Train a run in a new process. options: of `gptlite train`, up to the point's own.

    It stays in our process group: what a terminal or a batch system does to that reaches it too.
    """
    own = [word for setting in task.point.settings for word in ("--set", setting)]
    command = [sys.executable, "-m", "gptlite", "train", *options, *own, "--name", task.run.name, "--continue"]
    stderr = None if to_terminal else unnamed_file()
    environment = {**os.environ, VARIABLE: str(threads)}
    nothing = subprocess.DEVNULL
    process = subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=stderr, env=environment)
    return Worker(task, process, stderr)


def unnamed_file() -> int:
    """A file that goes with the last process that has it open. Into a pipe nobody could write when we are killed."""
    with files.storage_errors(Path(tempfile.gettempdir()), "create file"):
        descriptor, path = tempfile.mkstemp()
        os.unlink(path)
        return descriptor


class WorkerPool:
    """The tasks of a sweep and the processes at work on them."""

    def __init__(
        self, tasks: Sequence[SweepRun], start: Callable[[SweepRun], Worker], jobs: int, report: Report
    ) -> None:
        self.codes: dict[str, int] = {}  # exit codes by name
        self._waiting = [task for task in tasks if not task.is_done]
        self._children: list[Worker] = []
        self._start, self._jobs, self._report = start, jobs, report
        self._told_to_wait = self._told_to_stop = False
        self.cut_short = False  # whether there was work left when it was told to stop

    def work(self, signals: Signals) -> None:
        """Train what is not over, until it is; after a signal, or a failure of the disk, until the processes at work
        have saved and left. Runs that fail otherwise do not stop the others."""
        with signals.watched(), self._nobody_left():
            while self._children or (self._waiting and not self._told_to_stop):
                if not self._told_to_stop:
                    self._start_some()
                time.sleep(POLL)
                for child in list(self._children):
                    self._look_at(child)
                self._report.look()
                if signals.received or StorageError.exit_code in self.codes.values():
                    self._stop(signals.received)

    def _start_some(self) -> None:
        """Give free hands a run that nobody else has in hand."""
        while len(self._children) < self._jobs:
            task = next((task for task in self._waiting if not task.run.locked), None)
            if task is None:
                break
            self._waiting.remove(task)
            if not task.is_done:  # whoever had it may have finished it
                self._report.started(task)
                self._children.append(self._start(task))
        if self._waiting and not self._children and not self._told_to_wait:
            self._told_to_wait = True
            self._report.waits(self._waiting[0])

    def _look_at(self, child: Worker) -> None:
        code = child.process.poll()
        for line in child.new_lines():
            self._report.said(child.task, line)
        if code is None:
            return
        self._children.remove(child)
        child.close()
        if code and child.task.run.locked:  # another process was faster
            self._waiting.append(child.task)
            return
        self.codes[child.task.run.name] = code if code >= 0 else 128 - code  # as a shell counts deaths by a signal
        self._report.ended(child.task, self.codes[child.task.run.name])

    def _stop(self, received: int) -> None:
        """Tell every process once to save and leave, by the signal that was not received: that one may have reached
        the whole group, and a second of its kind would mean to give up."""
        if not self._told_to_stop:
            self._told_to_stop = True
            # A process that had the same signal may have left before we look.
            left = [name for name, code in self.codes.items() if code in STOPPED]
            self.cut_short = bool(self._children or self._waiting or left)
            for child in self._children:
                child.process.send_signal(signal.SIGINT if received == signal.SIGTERM else signal.SIGTERM)

    @contextmanager
    def _nobody_left(self) -> Iterator[None]:
        """Where something goes wrong here, let the processes at work save and leave; who gives up ends them at once."""
        try:
            yield
        except Interrupted:
            for child in self._children:
                child.process.kill()
            raise
        finally:
            self._stop(received=0)
            for child in self._children:
                child.process.wait()
                child.close()
