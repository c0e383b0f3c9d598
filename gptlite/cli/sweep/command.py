"""`gptlite train --sweep`: train one run for each point of a grid, and print a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from gptlite.cli.options import located_text
from gptlite.cli.terminal import emit
from gptlite.errors import ConfigError, Interrupted, Problem, StorageError, gathered, located

if TYPE_CHECKING:
    from gptlite.cli.sweep.sweep_runs import SweepRun
    from gptlite.cli.sweep.workers import Worker
    from gptlite.cli.train.configs import Configs
    from gptlite.cli.train.options import TrainOptions


@dataclass(frozen=True)
class Sweep:
    """A validated sweep."""

    name: str
    configs: Configs
    runs: Sequence[SweepRun]


def run_sweep(options: TrainOptions) -> None:
    """Train every point of the grid that is not trained yet, and print the table of all."""
    sweep = validate_sweep(options)
    from gptlite.cli.sweep.progress import SweepProgress
    from gptlite.cli.sweep.report import report
    from gptlite.cli.sweep.sweep_runs import check_runs, exit_code, prepare_texts, threads_per_run
    from gptlite.cli.sweep.workers import WorkerPool
    from gptlite.training.signals import Signals

    jobs, runs, again = options.jobs or 1, sweep.runs, options.to_continue_sweep
    threads = threads_per_run(jobs, len(runs))
    with located_text(options.data):
        check_runs(sweep.name, runs, continue_=options.continue_)
        progress = SweepProgress(sweep.name, runs, jobs, quiet=options.quiet)
        prepare_texts(runs, progress.say)
    pool = WorkerPool(runs, lambda run: start_unchanged(run, sweep, options, threads), jobs, progress)
    signals = Signals(f"sweep {sweep.name}", None, progress.answer_signal, "stopping all runs after their updates")
    with progress:
        pool.work(signals)
    if pool.cut_short:
        over = f"{sum(run.is_done for run in runs)} of {len(runs)} runs are finished. Continue with:\n  {again}"
        if signals.received:
            raise Interrupted(signals.received, f"stopped; every run is saved. {over}", where=f"sweep {sweep.name}")
        raise StorageError(f"stopped after the disk or network error above. {over}", where=f"sweep {sweep.name}")
    emit(report(runs, pool.codes, progress.say), styled=True)
    if code := exit_code(runs, pool.codes):
        raise typer.Exit(code)


def validate_sweep(options: TrainOptions) -> Sweep:
    """Read the grid and the config of every point. Raises ConfigError with every problem of options and points."""
    from gptlite.cli.sweep.sweep_runs import sweep_runs
    from gptlite.cli.train.configs import Configs
    from gptlite.config.grid import SweepAxis, load_points, points, read_axes
    from gptlite.config.schema import RunConfig
    from gptlite.runs.names import check_name

    problems: list[Problem] = options.problems()
    axes: list[SweepAxis] = []
    asked: list[RunConfig] = []
    with gathered(problems), located("--sweep"):
        axes = read_axes(options.sweep, options.keys_set)
    with gathered(problems):
        configs = Configs.of(options)
        stem = configs.base(configs.asked()) if configs.path is None else configs.path.stem
        name = f"{stem}-sweep" if options.name is None else options.name
        grid = points(axes, name)
        with gathered(problems), located(f"--name {name}", at=f"run {name}"):
            check_name(options.name, name)
            check_name(grid[0].name, name)  # longer by a number
        asked = load_points(configs.load, grid, "--sweep")
    if problems:
        raise ConfigError(problems)
    configs = configs.timed(configs.asked(), sweep_runs(grid, asked))
    return Sweep(name, configs, sweep_runs(grid, load_points(configs.load, grid, "--sweep")))


def start_unchanged(run: SweepRun, sweep: Sweep, options: TrainOptions, threads: int) -> Worker:
    """Start a worker for a run. Raises UserError if its config or text has changed since the sweep began."""
    from gptlite.cli.sweep.sweep_runs import check_same_text
    from gptlite.cli.sweep.workers import start
    from gptlite.config.grid import load_points

    if load_points(sweep.configs.load, [run.point]) != [run.cfg]:
        raise ConfigError(
            "this config was changed while the sweep was running. Change it back and add --continue, or start "
            "another sweep under another --name.",
            where=str(sweep.configs.path or "--minutes"),
        )
    check_same_text(run, sweep.runs)
    to_terminal = (options.jobs or 1) == 1
    return start(run, options.of_every_run, sweep.configs.environment, threads=threads, to_terminal=to_terminal)
