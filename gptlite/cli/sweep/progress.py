"""Progress of a sweep on standard error.

With one job, the run that trains writes to the terminal itself. With more, only the errors and new warnings of the
runs are passed on, and one progress bar counts the updates of all.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager
from time import monotonic
from typing import TYPE_CHECKING

from gptlite.cli.sweep.sweep_runs import STOPPED
from gptlite.cli.terminal import Console
from gptlite.errors import Diverged
from gptlite.formatting import counted
from gptlite.loggers.progress_bar import has_cursor
from gptlite.runs.summary import read_run

if TYPE_CHECKING:
    from gptlite.cli.sweep.sweep_runs import SweepRun
    from gptlite.loggers.metrics import Sink

TAIL = 20  # lines shown of a worker that a bug has ended
INTERVAL = 1.0  # seconds between updates of the bar
EXPLAINED = (0, 2, 3, 4, *STOPPED)  # exit codes of workers that have printed a message of their own


class SweepProgress(AbstractContextManager["SweepProgress"]):
    """Prints a line when a run starts or ends, and draws the bar. Leaving the context closes the bar."""

    def __init__(self, sweep: str, runs: Sequence[SweepRun], jobs: int, *, quiet: bool) -> None:
        self._runs, self._jobs, self._console = runs, jobs, Console(quiet=quiet)
        self.say = self._console.say  # lines that --quiet hides
        self._errors = Console() if quiet else self._console
        self._tails: dict[str, deque[str]] = {}
        self._warnings: set[str] = set()  # most concern every run
        self._ended = {run.name for run in runs if run.is_done}
        self._updates = [run.cfg.train.updates or 0 for run in runs]
        self._shows_bar = jobs > 1 and not quiet and has_cursor(sys.stderr) and all(self._updates)
        self._bar: Sequence[Sink] = ()
        self._drawn_at = monotonic()
        done = f", {len(self._ended)} of them finished" if self._ended else ""
        self.say(f"sweep {sweep}: {counted(len(runs), 'run')} in {runs[0].path.parent}{done}")

    def __exit__(self, *_: object) -> None:
        for sink in self._bar:
            sink.close()

    def started(self, run: SweepRun) -> None:
        """Print that a worker trains a run."""
        self.say(f"{self._label(run)} {run.name} {'continues' if run.started else 'starts'}")

    def wrote(self, run: SweepRun, line: str) -> None:
        """Pass on a line that a worker wrote if it is an error or a new warning."""
        self._tails.setdefault(run.name, deque(maxlen=TAIL)).append(line)
        if line.startswith("error: "):
            self._errors.say(f"{self._label(run)} {line}")
        elif line.startswith("warning: ") and line not in self._warnings:
            self._warnings.add(line)
            self.say(f"{self._label(run)} {line}")

    def ended(self, run: SweepRun, code: int) -> None:
        """Print how a run ended. If a bug ended it, print the last lines of the worker too."""
        for line in self._tails.pop(run.name, ()):
            if code not in EXPLAINED:
                self._errors.say(f"{self._label(run)} {line}")
        if code not in STOPPED:
            self._ended.add(run.name)
        self.say(f"{self._label(run)} {run.name} {describe_end(run, code)}")

    def waiting(self, run: SweepRun) -> None:
        """Print that only runs are left that other processes train."""
        self.say(f"waiting for {run.name}, which another process is training")

    def update(self) -> None:
        """Move the bar."""
        if not self._shows_bar or monotonic() < self._drawn_at + INTERVAL:
            return
        self._drawn_at = monotonic()
        done = sum(map(self._updates_done, self._runs, self._updates))
        if not self._bar:
            self._bar = self._console.begin(sum(self._updates), done, in_seconds=False)
        self._console.progress(done)

    def answer_signal(self, line: str) -> None:
        """Print a line from a signal handler; a run that has the terminal prints its own."""
        if self._jobs > 1:
            self._console.say_at_once(line)

    def _updates_done(self, run: SweepRun, updates: int) -> int:
        """The updates of a run that need no more waiting: all of them once it has ended, however it did."""
        if run.name in self._ended:
            return updates
        return read_run(run)[0].step if run.started else 0

    def _label(self, run: SweepRun) -> str:
        return f"[{self._runs.index(run) + 1}/{len(self._runs)}]"


def describe_end(run: SweepRun, code: int) -> str:
    """Say how a run ended, with its best score."""
    if not run.started:
        return f"failed with exit code {code}"
    summary, _ = read_run(run)
    state = summary.state if code in (0, Diverged.exit_code, *STOPPED) else f"failed with exit code {code}"
    best = summary.best_bits_per_byte
    return f"{state} at step {summary.step}" + ("" if best is None else f": {best:.3f} bits per byte")
