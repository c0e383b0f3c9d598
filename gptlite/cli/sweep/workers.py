"""Worker processes of a sweep, one per run, so that the memory and failures of a run do not affect the others.

With one job, the run that trains writes to the terminal itself. With more, only the errors and new warnings of the
runs are passed on, and one progress bar counts the updates of all.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from gptlite.cli.options import as_arguments
from gptlite.cli.sweep.sweep_runs import STOPPED, SweepRun
from gptlite.cli.terminal import Console
from gptlite.compute.limits import VARIABLE, available_threads
from gptlite.errors import Diverged, Interrupted
from gptlite.formatting import counted
from gptlite.loggers.metrics import Sink
from gptlite.loggers.progress_bar import has_cursor
from gptlite.runs.summary import read_run
from gptlite.storage import files
from gptlite.training.signals import SAVE, STOP, Signals

POLL = 0.1  # seconds between checks of the workers
BAR_INTERVAL = 1.0  # seconds between updates of the bar
TAIL = 20  # lines shown of a worker that a bug has ended
EXPLAINED = (0, 2, 3, 4, *STOPPED)  # exit codes of workers that have printed a message of their own


@dataclass
class Worker:
    """A process that trains one run, what it writes on standard error, and the last lines that were read of that."""

    run: SweepRun
    process: subprocess.Popen[bytes]
    stderr: TextIO
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=TAIL))
    half_line: str = ""
    is_stopping: bool = False

    def read_lines(self) -> list[str]:
        """Return the lines that it has written since the last call."""
        *lines, self.half_line = (self.half_line + self.stderr.read()).split("\n")
        self.tail += lines
        return lines

    def pass_on(self, request: int) -> None:
        """Ask it to save and go on, or once to save and exit.

        By the signal that was not received: that one may have reached the whole process group, and a second one of its
        kind would mean to stop at once.
        """
        if request == SAVE:
            self.process.send_signal(signal.SIGUSR1)
        elif request >= STOP and not self.is_stopping:
            self.is_stopping = True
            self.process.send_signal(signal.SIGINT if request == STOP + signal.SIGTERM else signal.SIGTERM)

    def wait(self) -> int:
        """Wait until it has ended; return its exit code, which for death by a signal is that of a shell."""
        code = self.process.wait()
        self.stderr.close()
        return code if code >= 0 else 128 - code


def environment_for(n_workers: int) -> dict[str, str]:
    """Return the variables by which as many workers share the threads.

    Neither they nor what they start import modules from the working directory.
    """
    threads: int = available_threads().value
    return {VARIABLE: str(max(1, threads // n_workers)), "PYTHONSAFEPATH": "1"}


def start(run: SweepRun, arguments: Sequence[str], environment: Mapping[str, str], *, to_terminal: bool) -> Worker:
    """Train a run in a new process. arguments: of `gptlite train`, the same for all runs, like more of the environment.

    It stays in our process group, so that it gets the signals of a terminal or a batch system too. What it does not
    write to the terminal goes into a file, since it could not write to a pipe after we were killed. Raises StorageError
    where the system starts no process.
    """
    own = [*as_arguments("--set", run.point.settings), "--name", run.name, "--continue"]
    command = [sys.executable, "-P", "-m", "gptlite", "train", *arguments, *own]
    variables, nothing = {**os.environ, **environment}, subprocess.DEVNULL
    with files.storage_errors(Path(sys.executable), "start"), tempfile.NamedTemporaryFile() as file:
        stderr = None if to_terminal else file  # which loses its name at once
        process = subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=stderr, env=variables)
        return Worker(run, process, open(file.name, encoding="utf-8", errors="replace"))


class Progress:
    """Prints a line when a run starts or ends, and with several jobs what is new in the output of the workers."""

    def __init__(self, sweep: str, runs: Sequence[SweepRun], jobs: int, *, quiet: bool) -> None:
        self._runs, self._jobs, self._console = runs, jobs, Console(quiet=quiet)
        self.say = self._console.say  # lines that --quiet hides
        self._errors = Console() if quiet else self._console
        self._labels = {run.name: f"[{number}/{len(runs)}]" for number, run in enumerate(runs, start=1)}
        self._warnings: set[str] = set()  # most concern every run
        # Updates that need no more waiting: all of those of a run that has ended, however it did.
        self._updates = {run.name: run.cfg.train.updates or 0 for run in runs}
        self._done = {run.name: self._updates[run.name] for run in runs if run.is_done}
        self._shows_bar = jobs > 1 and not quiet and has_cursor(sys.stderr) and all(self._updates.values())
        self._bar: Sequence[Sink] = ()
        self._drawn_at = time.monotonic()
        done = f", {len(self._done)} of them finished" if self._done else ""
        self.say(f"sweep {sweep}: {counted(len(runs), 'run')} in {runs[0].path.parent}{done}")

    def started(self, run: SweepRun) -> None:
        """Print that a worker trains a run."""
        self.say(f"{self._labels[run.name]} {run.name} {'continues' if run.started else 'starts'}")

    def wrote(self, run: SweepRun, lines: Sequence[str]) -> None:
        """Pass on the errors and new warnings among the lines that a worker wrote."""
        for line in lines:
            if line.startswith("error: "):
                self._errors.say(f"{self._labels[run.name]} {line}")
            elif line.startswith("warning: ") and line not in self._warnings:
                self._warnings.add(line)
                self.say(f"{self._labels[run.name]} {line}")

    def ended(self, run: SweepRun, code: int, tail: Sequence[str]) -> None:
        """Print how a run ended, with its best score, and if a bug ended it the last lines of the worker."""
        for line in () if code in EXPLAINED else tail:
            self._errors.say(f"{self._labels[run.name]} {line}")
        if code not in STOPPED:
            self._done[run.name] = self._updates[run.name]
        end = f"failed with exit code {code}"
        if run.started:
            summary, _ = read_run(run)
            state = summary.state if code in (0, Diverged.exit_code, *STOPPED) else end
            best = summary.best_bits_per_byte
            end = f"{state} at step {summary.step}" + ("" if best is None else f": {best:.3f} bits per byte")
        self.say(f"{self._labels[run.name]} {run.name} {end}")

    def move_bar(self) -> None:
        """Move the bar, at most once a second."""
        if not self._shows_bar or time.monotonic() < self._drawn_at + BAR_INTERVAL:
            return
        self._drawn_at = time.monotonic()
        going = [run for run in self._runs if run.name not in self._done and run.started]
        done = sum(self._done.values()) + sum(read_run(run)[0].step for run in going)
        self._bar = self._bar or self._console.begin(sum(self._updates.values()), done, in_seconds=False)
        self._console.progress(done)

    def close(self) -> None:
        """Close the bar."""
        for sink in self._bar:
            sink.close()

    def answer_signal(self, line: str) -> None:
        """Print a line from a signal handler; a run that has the terminal prints its own."""
        if self._jobs > 1:
            self._console.say_at_once(line)


def train_runs(
    runs: Sequence[SweepRun], start: Callable[[SweepRun], Worker], jobs: int, progress: Progress, signals: Signals
) -> dict[str, int]:
    """Train the runs that are not done, `jobs` at a time, and return the exit codes of all by name.

    A run that fails does not stop the others. A signal lets them save and exit, and runs that were not started have no
    code; a second one kills them.
    """
    codes = {run.name: Diverged.exit_code if run.diverged else 0 for run in runs if run.is_done}
    queue = [run for run in runs if run.name not in codes]
    workers: list[Worker] = []
    with signals.watched():
        try:
            while workers or (queue and not signals.received):
                while queue and len(workers) < jobs and not signals.received:
                    progress.started(queue[0])
                    workers.append(start(queue.pop(0)))
                time.sleep(POLL)
                for worker in list(workers):
                    has_ended = worker.process.poll() is not None
                    progress.wrote(worker.run, worker.read_lines())
                    if has_ended:
                        workers.remove(worker)
                        codes[worker.run.name] = worker.wait()
                        progress.ended(worker.run, codes[worker.run.name], worker.tail)
                progress.move_bar()
                request = signals.take_request()
                for worker in workers:
                    worker.pass_on(request)
        except Interrupted:
            for worker in workers:
                worker.process.kill()
            raise
        finally:  # after an error the others save and exit
            for worker in workers:
                worker.pass_on(STOP)
            for worker in workers:
                worker.wait()
            progress.close()
    return codes
