"""`gptlite train --sweep`: one run for each point of a grid, and a table at the end."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from gptlite.cli.options import DEFAULT_CONFIG, located_text, overrides_of
from gptlite.cli.terminal import Console, emit
from gptlite.compute.processes import world_size
from gptlite.errors import ConfigError, Problem, StorageError, gathered, located

if TYPE_CHECKING:
    from gptlite.cli.sweep.sweep_runs import SweepRun
    from gptlite.cli.sweep.workers import Worker


@dataclass(frozen=True)
class SweepOptions:
    """The options of a sweep, as given."""

    sweeps: Sequence[str]
    config: str | None
    sets: Sequence[str]
    data: Sequence[str]
    name: str | None
    jobs: int | None
    quiet: bool = False

    @property
    def of_a_run(self) -> list[str]:
        """The words that each of its runs takes too."""
        found = [] if self.config is None else ["--config", self.config]
        for option, values in (("--set", self.sets), ("--data", self.data)):
            found += [word for value in values for word in (option, value)]
        return found + ["--quiet"] * self.quiet

    @property
    def to_go_on(self) -> str:
        """The command line that goes on with it."""
        from gptlite.cli.train.command import program

        words = [*self.of_a_run, *(word for sweep in self.sweeps for word in ("--sweep", sweep))]
        words += [] if self.jobs is None else ["--jobs", str(self.jobs)]
        words += [] if self.name is None else ["--name", self.name]
        return f"{program('gptlite')} train {shlex.join([*words, '--continue'])}"

    @property
    def has_values(self) -> list[str]:
        """Keys that get one value for all runs."""
        return [word.partition("=")[0].strip() for word in self.sets] + ["data.source"] * bool(self.data)


@dataclass(frozen=True)
class Sweep:
    """One that makes sense."""

    name: str
    config: Path
    tasks: Sequence[SweepRun]


def sweep_runs(asked: SweepOptions, *, go_on: bool, resume: str | None, dry_run: bool, as_json: bool) -> None:
    """Train every point of a grid that is not trained yet, and print what came of all."""
    sweep = planned(asked, [Problem(each) for each in problems_of(asked, resume, dry_run=dry_run, as_json=as_json)])
    from gptlite.cli.sweep.progress import Lines
    from gptlite.cli.sweep.report import report
    from gptlite.cli.sweep.sweep_runs import check_runs, first_failure, ready_texts, share_of_threads
    from gptlite.cli.sweep.workers import WorkerPool
    from gptlite.training.signals import Signals

    console, jobs, tasks = Console(quiet=asked.quiet), asked.jobs or 1, sweep.tasks
    threads = share_of_threads(jobs, len(tasks))
    with located_text(asked.data):
        check_runs(sweep.name, tasks, go_on=go_on)
        lines = Lines(sweep.name, tasks, jobs, console, quiet=asked.quiet)
        ready_texts(tasks, console.say)
    crew = WorkerPool(tasks, lambda task: start_as_planned(task, sweep, asked, threads), jobs, lines)
    signals = Signals(f"sweep {sweep.name}", asked.to_go_on, lines.stopping, "stopping the runs after their updates")
    with lines:
        crew.work(signals)
    if crew.cut_short:
        over = f"{sum(task.is_done for task in tasks)} of {len(tasks)} runs are over"
        if signals.received:
            raise signals.interrupted(signals.received, f"stopped and saved; {over}")
        raise StorageError(
            f"sweep {sweep.name}: disk or network = failed, as said above: {over}; mend it, then go on with: "
            f"{asked.to_go_on}"
        )
    emit(report(tasks, crew.codes, console.say))
    if code := first_failure(tasks, crew.codes):
        raise typer.Exit(code)


def problems_of(asked: SweepOptions, resume: str | None, *, dry_run: bool, as_json: bool) -> list[str]:
    """What is wrong with the options of a sweep, or contradicts it."""
    problems = []
    if not asked.sweeps:
        problems.append("--jobs = without --sweep: the runs of a sweep at a time; add --sweep, or leave it out")
    if resume is not None:
        problems.append(f"--sweep = with --resume {resume}: it goes on with its own runs; give --continue instead")
    if dry_run:
        problems.append("--sweep = with --dry-run: a plan is made of one run; give one value with --set")
    if as_json:
        problems.append("--json = with --sweep: the form of a plan; leave it out, and see gptlite runs --json")
    if asked.jobs is not None and asked.jobs < 1:
        problems.append(f"--jobs = {asked.jobs}: a whole number >= 1, the runs that train at a time; correct it")
    if world_size() > 1:
        problems.append(f"--sweep = {world_size()} processes: one, which starts the others; start it without torchrun")
    return problems


def planned(asked: SweepOptions, problems: list[Problem]) -> Sweep:
    """The sweep's name and runs. ConfigError with every problem of all points, after those found before."""
    from gptlite.cli.sweep.sweep_runs import sweep_runs_of
    from gptlite.config.grid import SweepAxis, load_points, points, read_axes
    from gptlite.config.loading import find_config
    from gptlite.config.schema import RunConfig
    from gptlite.runs.run import Run

    axes: list[SweepAxis] = []
    configs: list[RunConfig] = []
    with gathered(problems), located("--sweep"):
        axes = read_axes(asked.sweeps, asked.has_values)
    with gathered(problems):
        path = find_config(asked.config or DEFAULT_CONFIG)
        name = f"{path.stem}-sweep" if asked.name is None else asked.name
        grid = points(axes, name)
        with gathered(problems):
            Run.check_name(asked.name, name)
            Run.check_name(grid[0].name, name)  # longer by a number
        with located("--set"):
            configs = load_points(path, overrides_of(asked.sets, asked.data), grid, "--sweep")
    if problems:
        raise ConfigError(problems)
    return Sweep(name, path, sweep_runs_of(grid, configs))


def start_as_planned(task: SweepRun, sweep: Sweep, asked: SweepOptions, threads: int) -> Worker:
    """A process for a run. UserError where its config or text were changed while others trained."""
    from gptlite.cli.sweep.sweep_runs import check_same_text
    from gptlite.cli.sweep.workers import start
    from gptlite.config.grid import load_points

    if load_points(sweep.config, overrides_of(asked.sets, asked.data), [task.point]) != [task.cfg]:
        raise ConfigError(
            f"{sweep.config}: content = changed since the sweep began: one config for all runs; put it back and add "
            "--continue, or sweep anew under another --name"
        )
    check_same_text(task, sweep.tasks)
    return start(task, asked.of_a_run, threads=threads, to_terminal=(asked.jobs or 1) == 1)
