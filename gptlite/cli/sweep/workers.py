"""The runs of a sweep, and a process for each, so that the memory and failures of a run do not affect the others.

What can be refused is refused before the first one starts. With one job, the run that trains writes to the terminal
itself. With more, only the errors and warnings of a run are passed on, when it has ended.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from gptlite.cli.options import as_arguments
from gptlite.cli.terminal import Console
from gptlite.compute.limits import VARIABLE, available_threads
from gptlite.config.grid import Point, load_points, names_of
from gptlite.config.schema import RunConfig
from gptlite.data.preparing.prepare import prepare
from gptlite.errors import ConfigError, DataError, Diverged, Interrupted, Problem, RunError, gathered
from gptlite.formatting import Say, and_more, counted
from gptlite.planning.epochs import with_max_steps
from gptlite.runs.find_text import find_text, with_tokenizer
from gptlite.runs.run import Run, runs_folder
from gptlite.runs.summary import read_run
from gptlite.storage import files
from gptlite.training.launch import as_recorded, check_text
from gptlite.training.reconcile import reconcile, saved_config
from gptlite.training.signals import SAVE, STOP, Signals

if TYPE_CHECKING:
    from gptlite.cli.train.configs import Configs

POLL = 0.1  # seconds between checks of the workers
TAIL = 20  # lines shown of a worker that a bug has ended
STOPPED = (129, 130, 143)  # exit codes of runs that a signal stopped
EXPLAINED = (0, 2, 3, 4, *STOPPED)  # exit codes of workers that have printed a message of their own


@dataclass(frozen=True)
class SweepRun(Run):
    """A run of a sweep, which may exist already, with its point of the grid and its config."""

    point: Point
    cfg: RunConfig

    def changes(self) -> bool:
        """Return whether the existing run is to train longer or otherwise. Raises ConfigError if it may not."""
        saved, wanted = saved_config(self), as_recorded(self.cfg, self)
        if wanted.train.epochs is not None and (text := find_text(self, saved)) is not None:
            wanted = with_max_steps(wanted, text.manifest.train.tokens)
        return reconcile(saved, wanted, self.name) != saved

    @property
    def is_done(self) -> bool:
        """Return whether nothing is left to train. A run that diverged would diverge again, at the same update."""
        return (self.finished or self.diverged) and not self.changes()

    @property
    def text_keys(self) -> str:
        """Return all keys that decide the token ids, in one string."""
        return f"{self.cfg.data!r}{self.cfg.tokenizer!r}"


def sweep_runs(grid: Sequence[Point], configs: Sequence[RunConfig]) -> list[SweepRun]:
    """Return the runs of a grid, all in one folder."""
    root = runs_folder(configs[0].run.dir)
    return [SweepRun(root / point.name, point, cfg) for point, cfg in zip(grid, configs, strict=True)]


def check_runs(sweep: str, runs: Sequence[SweepRun], *, continue_: bool) -> None:
    """Raise RunError if runs of this sweep exist and may not be continued, or belong to another grid."""
    existing = [run.name for run in Run.all(runs[0].path.parent) if names_of(sweep).fullmatch(run.name)]
    if existing and not continue_:
        sentence = f"a sweep of this name exists: its run {existing[0]}. Add --continue to continue it, or choose "
        raise RunError(f"{sentence}another name.", where=f"--name {sweep}")
    names: dict[str, list[str]] = {}  # of the runs that share a problem
    if others := [name for name in existing if name not in {run.name for run in runs}]:
        advice = "Give the keys and values of that sweep in the same order, or choose another --name."
        names[f"this run is not in the grid. {advice}"] = others
    for run in runs:
        own: list[Problem] = []
        with gathered(own):
            _ = run.started and run.changes()
        for problem in own:
            names.setdefault(problem.sentence, []).append(run.name)
    if names:
        raise RunError([Problem(sentence, f"run {and_more(shared, 1)}") for sentence, shared in names.items()])


def prepare_texts(runs: Sequence[SweepRun], say: Say) -> None:
    """Prepare every text that a new run needs, once for all that share it. Raises DataError with every problem."""
    problems: list[Problem] = []
    by_text = {run.text_keys: run.cfg for run in runs}
    for text_keys, cfg in by_text.items():
        same_text = [run for run in runs if run.text_keys == text_keys]
        with gathered(problems):
            check_text([run for run in same_text if run.started], cfg)
            sizes = [run.cfg.model.block_size for run in same_text if not run.started]
            if sizes:
                prepared = prepare(cfg.data, with_tokenizer(cfg, say).tokenizer, say)
                prepared.check_block_size(max(sizes))
    if problems:
        raise DataError(list(dict.fromkeys(problems)))


def check_unchanged(run: SweepRun, runs: Sequence[SweepRun], configs: Configs) -> None:
    """Raise UserError if the config or the text of a run is no longer the one that the sweep began with."""
    if load_points(configs.load, [run.point]) != [run.cfg]:
        raise ConfigError(
            "this config was changed while the sweep was running. Change it back and add --continue, or start "
            "another sweep under another --name.",
            where=str(configs.path or "--minutes"),
        )
    check_text([other for other in runs if other.started and other.text_keys == run.text_keys], run.cfg)


@dataclass
class Worker:
    """A process that trains one run, and what it writes on standard error."""

    run: SweepRun
    process: subprocess.Popen[bytes]
    stderr: TextIO
    is_stopping: bool = False

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

    def wait(self) -> tuple[int, list[str]]:
        """Wait until it has ended; return its exit code, for death by a signal that of a shell, and what it wrote."""
        code = self.process.wait()
        with self.stderr as file:
            return code if code >= 0 else 128 - code, file.read().splitlines()


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
    """Prints a line when a run starts or ends, and with several jobs the errors and warnings that it wrote."""

    def __init__(self, sweep: str, runs: Sequence[SweepRun], jobs: int, *, quiet: bool) -> None:
        self._jobs, self._console = jobs, Console(quiet=quiet)
        self.say = self._console.say  # lines that --quiet hides
        self._errors = Console() if quiet else self._console
        self._labels = {run.name: f"[{number}/{len(runs)}]" for number, run in enumerate(runs, start=1)}
        over = sum(run.is_done for run in runs)
        done = f", {over} of them finished" if over else ""
        self.say(f"sweep {sweep}: {counted(len(runs), 'run')} in {runs[0].path.parent}{done}")

    def started(self, run: SweepRun) -> None:
        """Print that a worker trains a run."""
        self.say(f"{self._labels[run.name]} {run.name} {'continues' if run.started else 'starts'}")

    def ended(self, run: SweepRun, code: int, written: Sequence[str]) -> None:
        """Print how a run ended, with its best score, and what it wrote: if a bug ended it, the last lines of it."""
        told = [line for line in written if line.startswith(("error: ", "warning: "))]
        for line in told if code in EXPLAINED else written[-TAIL:]:
            say = self.say if line.startswith("warning: ") else self._errors.say
            say(f"{self._labels[run.name]} {line}")
        end = f"failed with exit code {code}"
        if run.started:
            summary, _ = read_run(run)
            state = summary.state if code in (0, Diverged.exit_code, *STOPPED) else end
            best = summary.best_bits_per_byte
            end = f"{state} at step {summary.step}" + ("" if best is None else f": {best:.3f} bits per byte")
        self.say(f"{self._labels[run.name]} {run.name} {end}")

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
                    if worker.process.poll() is not None:
                        workers.remove(worker)
                        codes[worker.run.name], written = worker.wait()
                        progress.ended(worker.run, codes[worker.run.name], written)
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
    return codes
