"""`gptlite train --sweep`: train one run for each point of a grid, in a process of its own, and print a table.

So the memory and failures of a run do not affect the others. What can be refused is refused before the first one
starts. All runs write to the terminal; of several at a time only errors.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import typer

from gptlite.cli.options import located_text
from gptlite.cli.runs.diff import FEW, verdict_columns
from gptlite.cli.runs.table import as_table, read_summaries, sort_rows
from gptlite.cli.terminal import Console, emit, next_commands
from gptlite.cli.train.configs import Configs
from gptlite.cli.train.options import TrainOptions
from gptlite.compute.limits import VARIABLE, available_threads
from gptlite.config.grid import Point, load_points, names_of, points, read_axes
from gptlite.config.schema import RunConfig
from gptlite.data.preparing.prepare import prepare
from gptlite.errors import ConfigError, Diverged, Interrupted, RunError, located
from gptlite.formatting import Say, and_more, counted, say_nothing
from gptlite.planning.choose_sizes import SPEED_VARIABLE
from gptlite.planning.choose_training import with_max_steps
from gptlite.runs.compare import group_seeds
from gptlite.runs.find import find_text, with_tokenizer
from gptlite.runs.run import Run, check_name, runs_folder
from gptlite.runs.significance import MARGIN
from gptlite.runs.summary import read_run
from gptlite.storage import files
from gptlite.training.launch import as_recorded, check_text
from gptlite.training.reconcile import reconcile, saved_config
from gptlite.training.signals import SAVE, STOP, Signals

POLL = 0.1  # seconds between checks of the workers
STOPPED = (129, 130, 143)  # exit codes of runs that a signal stopped


@dataclass(frozen=True)
class SweepRun(Run):
    """A run of a sweep, which may exist already, with its point of the grid and its config."""

    point: Point
    cfg: RunConfig
    label: str  # [1/3]

    @property
    def is_done(self) -> bool:
        """Return whether nothing is left to train. A run that diverged would diverge again, at the same update.

        Raises ConfigError where an existing run may not get this config.
        """
        if not self.started:
            return False
        saved, wanted = saved_config(self), as_recorded(self.cfg, self)
        if wanted.train.epochs is not None and (text := find_text(self, saved)) is not None:
            wanted = with_max_steps(wanted, text.manifest.train.tokens)
        return reconcile(saved, wanted, self.name) == saved and (self.finished or self.diverged)

    @property
    def text_keys(self) -> str:
        """Return all keys that decide the token ids, in one string."""
        return f"{self.cfg.data!r}{self.cfg.tokenizer!r}"


@dataclass
class Worker:
    """A process that trains one run."""

    run: SweepRun
    process: subprocess.Popen[bytes]
    is_stopping: bool = False

    def pass_on(self, request: int) -> None:
        """Ask it to save and go on, or once to save and exit: by the signal that was not received. That one may have
        reached the whole process group, and a second one of its kind would mean to stop at once."""
        if request == SAVE:
            self.process.send_signal(signal.SIGUSR1)
        elif request >= STOP and not self.is_stopping:
            self.is_stopping = True
            self.process.send_signal(signal.SIGINT if request == STOP + signal.SIGTERM else signal.SIGTERM)


def run_sweep(options: TrainOptions) -> None:
    """Train every point of the grid that is not trained yet, each in a process of its own; print the table of all."""
    name, configs, runs = plan_sweep(options)
    options = replace(options, init=configs.init)
    jobs, say = options.jobs or 1, Console(quiet=options.quiet).say
    with located_text(options.data, options.init):
        check_runs(name, runs, continue_=options.continue_)
        finished = f", {done} of them finished" if (done := sum(run.is_done for run in runs)) else ""
        say(f"sweep {name}: {counted(len(runs), 'run')} in {runs[0].path.parent}{finished}")
        prepare_texts(runs, say)
    environment = environment_for(min(jobs, len(runs)))
    if configs.speed is not None:  # so that all choose for the same speed
        environment[SPEED_VARIABLE] = str(configs.speed.value)
    arguments = replace(options, quiet=options.quiet or jobs > 1).of_every_run

    def start_run(run: SweepRun) -> Worker:
        check_unchanged(run, runs, configs)
        return start(run, arguments, environment)

    signals = Signals(f"sweep {name}", None, say_nothing)  # the runs answer
    codes = train_runs(runs, start_run, jobs, say, signals)
    if signals.received:
        over = f"{sum(run.is_done for run in runs)} of {len(runs)} runs are finished"
        sentence = f"stopped; every run is saved. {over}. Continue with:\n  {options.to_continue_sweep}"
        raise Interrupted(signals.received, sentence, where=f"sweep {name}")
    emit(report(runs, codes, say))
    if code := next((codes[run.name] for run in runs if codes[run.name]), 0):
        raise typer.Exit(code)


def plan_sweep(options: TrainOptions) -> tuple[str, Configs, Sequence[SweepRun]]:
    """Return the sweep's name, what loads its configs, and its runs. Raises ConfigError."""
    if problems := options.problems():
        raise ConfigError(problems)
    with located("--sweep"):
        axes = read_axes(options.sweep, options.keys_set)
    configs = Configs.of(options)
    stem = configs.base(configs.asked()) if configs.path is None else configs.path.stem
    name = f"{stem}-sweep" if options.name is None else options.name
    grid = points(axes, name)
    with located(f"--name {name}", at=f"run {name}"):
        check_name(options.name, name)
        check_name(grid[0].name, name)  # longer by a number
    runs = sweep_runs(grid, load_points(configs.load, grid, "--sweep"))
    if configs.init is not None:  # all begin with the same checkpoint, also if the other run is trained on meanwhile
        begun = (saved_config(run).train.from_ for run in runs if run.started)
        options = replace(options, init=next(begun, None) or runs[0].cfg.train.from_)
        configs = Configs.of(options)
    configs = configs.timed(configs.asked(), runs)
    return name, configs, sweep_runs(grid, load_points(configs.load, grid, "--sweep"))


def sweep_runs(grid: Sequence[Point], configs: Sequence[RunConfig]) -> list[SweepRun]:
    """Return the runs of a grid, all in one folder."""
    root, numbered = runs_folder(configs[0].run.dir), enumerate(zip(grid, configs, strict=True), start=1)
    return [SweepRun(root / point.name, point, cfg, f"[{i}/{len(grid)}]") for i, (point, cfg) in numbered]


def check_runs(sweep: str, runs: Sequence[SweepRun], *, continue_: bool) -> None:
    """Raise RunError if runs of this sweep exist and are not to be continued, or belong to another grid."""
    existing = [run.name for run in Run.all(runs[0].path.parent) if names_of(sweep).fullmatch(run.name)]
    if existing and not continue_:
        sentence = f"a sweep of this name exists: its run {existing[0]}. Add --continue to continue it, or choose "
        raise RunError(f"{sentence}another name.", where=f"--name {sweep}")
    if others := set(existing) - {run.name for run in runs}:
        advice = "Give the keys and values of that sweep in the same order, or choose another --name."
        raise RunError(f"this run is not in the grid. {advice}", f"run {min(others)}")


def prepare_texts(runs: Sequence[SweepRun], say: Say) -> None:
    """Prepare every text that a new run needs, once for all that share it. Raises DataError."""
    by_text: dict[str, list[SweepRun]] = {}
    for run in runs:
        by_text.setdefault(run.text_keys, []).append(run)
    for same_text in by_text.values():
        cfg, new = same_text[0].cfg, [run for run in same_text if not run.started]
        check_text([run for run in same_text if run.started], cfg)
        if new:
            prepared = prepare(cfg.data, with_tokenizer(cfg, say).tokenizer, say)
            prepared.check_block_size(max(run.cfg.model.block_size for run in new))


def check_unchanged(run: SweepRun, runs: Sequence[SweepRun], configs: Configs) -> None:
    """Raise UserError if the config or the text of a run is no longer the one that the sweep began with."""
    if load_points(configs.load, [run.point]) != [run.cfg]:
        raise ConfigError(
            "this config was changed while the sweep was running. Change it back and add --continue, or start "
            "another sweep under another --name.",
            where=str(configs.path or "--minutes"),
        )
    check_text([other for other in runs if other.started and other.text_keys == run.text_keys], run.cfg)


def environment_for(n_workers: int) -> dict[str, str]:
    """Return the variables by which workers share the threads, and import nothing from the working directory."""
    threads: int = available_threads().value
    return {VARIABLE: str(max(1, threads // n_workers)), "PYTHONSAFEPATH": "1"}


def start(run: SweepRun, arguments: Sequence[str], environment: Mapping[str, str]) -> Worker:
    """Train a run in a new process. arguments: of `gptlite train`, the same for all runs, like more of the environment.

    It stays in our process group, so that it gets the signals of a terminal or a batch system too. Raises StorageError
    where the system starts no process.
    """
    own = [*(f"--set={setting}" for setting in run.point.settings), "--name", run.name, "--continue"]
    command = [sys.executable, "-P", "-m", "gptlite", "train", *arguments, *own]
    variables, nothing = {**os.environ, **environment}, subprocess.DEVNULL
    with files.storage_errors(Path(sys.executable), "start"):
        return Worker(run, subprocess.Popen(command, stdin=nothing, stdout=nothing, env=variables))


def train_runs(
    runs: Sequence[SweepRun], start: Callable[[SweepRun], Worker], jobs: int, say: Say, signals: Signals
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
                    run = queue.pop(0)
                    say(f"{run.label} {run.name} {'continues' if run.started else 'starts'}")
                    workers.append(start(run))
                time.sleep(POLL)
                for worker in list(workers):
                    code = worker.process.poll()
                    if code is not None:
                        workers.remove(worker)
                        codes[worker.run.name] = code if code >= 0 else 128 - code  # as of a shell
                        say(describe_end(worker.run, codes[worker.run.name]))
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
                worker.process.wait()
    return codes


def describe_end(run: SweepRun, code: int) -> str:
    """Say how a run ended, with its best score."""
    end = f"failed with exit code {code}"
    if run.started:
        summary, _ = read_run(run)
        state = summary.state if code in (0, Diverged.exit_code, *STOPPED) else end
        best = summary.best_bits_per_byte
        end = f"{state} at step {summary.step}" + ("" if best is None else f": {best:.3f} bits per byte")
    return f"{run.label} {run.name} {end}"


def report(runs: Sequence[SweepRun], codes: Mapping[str, int], say: Say) -> str:
    """Return the table, what failed, and the next commands: the best run first, without a mask last, seeds in one row.

    No figure depends on the clock, so a sweep that was killed and continued has the same table.
    """
    groups = sort_rows(group_seeds(read_summaries([run for run in runs if run.started], say)), "best")
    verdicts = verdict_columns(groups, MARGIN)
    tells = any(verdicts["difference"])
    table = as_table(groups, ("run", "state", "bits/byte", "at"), verdicts if tells else {}) if groups else ""
    failed = [run.name for run in runs if codes[run.name] not in (0, Diverged.exit_code, *STOPPED)]
    table += f"failed: {and_more(failed, 3)}\n" if failed else ""
    # One without a mask cannot write, and its score cannot be compared.
    ranked = [group.first for group in groups if group.first.state == "finished" and not group.first.sees_ahead]
    handles = [shlex.quote(run.run.handle) for run in ranked]
    if len(ranked) > 1 and not tells:
        table += f"\none seed each cannot tell which is better: --seeds {FEW} trains {FEW} of each\n"
    if not handles:
        return table
    compare = [f"runs diff {handles[0]} {handles[1]}"] if len(handles) > 1 else []
    commands = next_commands([f'sample {handles[0]} --prompt "..."', *compare], runs[0].path.parent)
    return table + "".join(f"{line}\n" for line in commands)
