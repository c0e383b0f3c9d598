"""What a person sees of a sweep while it trains: a line when a run starts and when it ends, and what goes wrong.

One run at a time has the terminal, with its own bar and samples. Of several only warnings and errors are passed on, and
one bar counts the updates of all.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager
from time import monotonic
from typing import TYPE_CHECKING

from gptlite.cli.sweep.workers import STOPPED
from gptlite.cli.terminal import Console
from gptlite.errors import Diverged
from gptlite.formatting import counted
from gptlite.loggers.progress_bar import has_cursor
from gptlite.runs.summary import read_run

if TYPE_CHECKING:
    from gptlite.cli.sweep.sweep_runs import SweepRun
    from gptlite.loggers.metrics import Sink

TAIL = 20  # lines that are shown of a process that a bug has ended
BETWEEN_LOOKS = 1.0  # seconds
SAID_ALL = (0, 2, 3, 4, *STOPPED)  # exit codes of runs that have said themselves what is wrong


class Lines(AbstractContextManager["Lines"]):
    """See training.crew.Report. Leaving it leaves the bar as it stands."""

    def __init__(self, sweep: str, tasks: Sequence[SweepRun], jobs: int, console: Console, *, quiet: bool) -> None:
        self._tasks, self._jobs, self._console = tasks, jobs, console
        self._labels = {task.run.name: f"[{i}/{len(tasks)}]" for i, task in enumerate(tasks, start=1)}
        self._tails: dict[str, deque[str]] = {}
        self._warnings: set[str] = set()  # most are true of every run
        over = [task for task in tasks if task.is_done]
        self._over = {task.run.name for task in over}
        self._updates = [task.cfg.train.updates or 0 for task in tasks]
        self._shows_bar = jobs > 1 and not quiet and has_cursor(sys.stderr) and all(self._updates)
        self._bar: Sequence[Sink] = ()
        self._looked_at = monotonic()
        kept = f", {len(over)} of them over already" if over else ""
        console.say(f"sweep {sweep}: {counted(len(tasks), 'run')} in {tasks[0].run.path.parent}{kept}")

    def __exit__(self, *_: object) -> None:
        for sink in self._bar:
            sink.close()

    def started(self, task: SweepRun) -> None:
        """See Report."""
        self._say(task, f"{task.run.name} {'goes on' if task.run.started else 'starts'}")

    def said(self, task: SweepRun, line: str) -> None:
        """See Report: errors are passed on, and warnings that are new."""
        self._tails.setdefault(task.run.name, deque(maxlen=TAIL)).append(line)
        # The sweep says how to go on with all.
        stopped = line.startswith((f"error: run {task.run.name}: signal = ", "error: interrupted"))
        repeated = line in self._warnings
        if line.startswith("warning: "):
            self._warnings.add(line)
        if line.startswith(("error: ", "warning: ")) and not stopped and not repeated:
            self._say(task, line)

    def ended(self, task: SweepRun, code: int) -> None:
        """See Report."""
        for line in self._tails.pop(task.run.name, ()):
            if code not in SAID_ALL:
                self._say(task, line)
        if code not in STOPPED:
            self._over.add(task.run.name)
        self._say(task, f"{task.run.name} {outcome(task, code)}")

    def waits(self, task: SweepRun) -> None:
        """See Report."""
        self._console.say(f"waiting for {task.run.name}, which another process trains")

    def look(self) -> None:
        """See Report: the bar moves."""
        if not self._shows_bar or monotonic() < self._looked_at + BETWEEN_LOOKS:
            return
        self._looked_at = monotonic()
        done = sum(map(self._updates_done, self._tasks, self._updates))
        if not self._bar:
            self._bar = self._console.begin(sum(self._updates), done, in_seconds=False)
        self._console.progress(done)

    def _updates_done(self, task: SweepRun, updates: int) -> int:
        """As far as the bar goes: a run that is over needs no more, however it ended."""
        if task.run.name in self._over:
            return updates
        return read_run(task.run)[0].step if task.run.started else 0

    def stopping(self, line: str) -> None:
        """Answer a signal, from inside its handler; a run that has the terminal does so itself."""
        if self._jobs > 1:
            self._console.say_at_once(line)

    def _say(self, task: SweepRun, line: str) -> None:
        self._console.say(f"{self._labels[task.run.name]} {line}")


def outcome(task: SweepRun, code: int) -> str:
    """How a run ended, in words."""
    if not task.run.started:
        return f"failed, exit code {code}"
    summary, _ = read_run(task.run)
    state = summary.state if code in (0, Diverged.exit_code, *STOPPED) else f"failed, exit code {code}"
    if summary.best_bits_per_byte is None:
        return f"{state} after {summary.step}"
    return f"{state} after {summary.step}: {summary.best_bits_per_byte:.3f} bits per byte"
