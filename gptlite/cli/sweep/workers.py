"""Worker processes of a sweep, one per run, so that the memory and failures of a run do not affect the others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from gptlite.cli.options import as_arguments
from gptlite.cli.sweep.sweep_runs import STOPPED, SweepRun
from gptlite.compute.threads import VARIABLE
from gptlite.errors import Interrupted, StorageError
from gptlite.storage import files
from gptlite.training.signals import SAVE, Signals

if TYPE_CHECKING:
    from gptlite.cli.sweep.progress import SweepProgress

POLL = 0.1  # seconds between checks of the workers
CHUNK = 1 << 16  # bytes


@dataclass
class Worker:
    """A process that trains one run."""

    run: SweepRun
    process: subprocess.Popen[bytes]
    stderr: IO[bytes] | None = None  # None: it writes to the terminal
    n_read: int = 0

    def new_lines(self) -> list[str]:
        """The lines that it has written on standard error since the last call."""
        if self.stderr is None:
            return []
        # pread, because the file position is shared with the worker, who writes there.
        chunk = os.pread(self.stderr.fileno(), CHUNK, self.n_read)
        complete = chunk[: chunk.rfind(b"\n") + 1]
        self.n_read += len(complete)
        return complete.decode(errors="replace").splitlines()

    def close(self) -> None:
        """Close its standard error."""
        if self.stderr is not None:
            self.stderr.close()


def start(
    run: SweepRun, arguments: Sequence[str], environment: Mapping[str, str], *, threads: int, to_terminal: bool
) -> Worker:
    """Train a run in a new process. arguments: of `gptlite train`, the same for all runs, like more of the environment.

    It stays in our process group, so that it gets the signals of a terminal or a batch system too. Neither it nor what
    it starts imports modules from the working directory. Raises StorageError where the system starts no process.
    """
    arguments = [*arguments, *as_arguments("--set", run.point.settings), "--name", run.name, "--continue"]
    command = [sys.executable, "-P", "-m", "gptlite", "train", *arguments]
    stderr = None if to_terminal else open_stderr()
    nothing = subprocess.DEVNULL
    environment = {**os.environ, **environment, VARIABLE: str(threads), "PYTHONSAFEPATH": "1"}
    with files.storage_errors(Path(sys.executable), "start"):
        process = subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=stderr, env=environment)
    return Worker(run, process, stderr)


def open_stderr() -> IO[bytes]:
    """A temporary file without a name. A worker can write to it after we were killed, unlike to a pipe."""
    with files.storage_errors(Path(tempfile.gettempdir()), "create file"):
        return tempfile.TemporaryFile()


class WorkerPool:
    """The runs of a sweep that are left to train, and the workers that train them.

    codes: exit codes of the runs that were trained, by name. cut_short: whether work was left when it was stopped.
    """

    def __init__(
        self, runs: Sequence[SweepRun], start: Callable[[SweepRun], Worker], jobs: int, progress: SweepProgress
    ) -> None:
        self.codes: dict[str, int] = {}
        self.cut_short = False
        self._queue = [run for run in runs if not run.is_done]
        self._workers: list[Worker] = []
        self._start, self._jobs, self._progress = start, jobs, progress
        self._stopping = self._said_waiting = False

    def work(self, signals: Signals) -> None:
        """Train all runs. A run that fails does not stop the others; a signal or a storage error stops all, saved."""
        with signals.watched(), self._stopped_on_error():
            while self._workers or (self._queue and not self._stopping):
                if not self._stopping:
                    self._start_workers()
                time.sleep(POLL)
                for worker in list(self._workers):
                    self._check(worker)
                self._progress.update()
                if signals.take_request() == SAVE:
                    for worker in self._workers:
                        worker.process.send_signal(signal.SIGUSR1)
                if signals.received or StorageError.exit_code in self.codes.values():
                    self._stop(signals.received)

    def _start_workers(self) -> None:
        """Start queued runs until all jobs are taken, skipping runs that another process has locked."""
        while len(self._workers) < self._jobs:
            run = next((run for run in self._queue if not run.locked), None)
            if run is None:
                break
            self._queue.remove(run)
            if not run.is_done:  # the other process may have finished it
                self._progress.started(run)
                self._workers.append(self._start(run))
        if self._queue and not self._workers and not self._said_waiting:
            self._said_waiting = True
            self._progress.waiting(self._queue[0])

    def _check(self, worker: Worker) -> None:
        """Pass on what a worker has written, and note its exit code if it has ended."""
        code = worker.process.poll()
        for line in worker.new_lines():
            self._progress.wrote(worker.run, line)
        if code is None:
            return
        self._workers.remove(worker)
        worker.close()
        if code and worker.run.locked:  # another process locked the run first
            self._queue.append(worker.run)
            return
        self.codes[worker.run.name] = code if code >= 0 else 128 - code  # death by a signal, as shells count it
        self._progress.ended(worker.run, self.codes[worker.run.name])

    def _stop(self, received: int) -> None:
        """Tell every worker once to save and exit, by the signal that was not received: that one may have reached the
        whole process group, and a second one of its kind would mean to stop at once."""
        if not self._stopping:
            self._stopping = True
            # A worker that got the same signal may have ended before we look.
            left = [name for name, code in self.codes.items() if code in STOPPED]
            self.cut_short = bool(self._workers or self._queue or left)
            for worker in self._workers:
                worker.process.send_signal(signal.SIGINT if received == signal.SIGTERM else signal.SIGTERM)

    @contextmanager
    def _stopped_on_error(self) -> Iterator[None]:
        """Let the workers save and exit if an error ends the pool; after a second Ctrl-C, kill them."""
        try:
            yield
        except Interrupted:
            for worker in self._workers:
                worker.process.kill()
            raise
        finally:
            self._stop(received=0)
            for worker in self._workers:
                worker.process.wait()
                worker.close()
