"""`gptlite train --sweep`: train one run for each point of a grid, and print a table."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

import typer

from gptlite.cli.options import located_text
from gptlite.cli.runs.table import as_table, read_summaries, sort_rows
from gptlite.cli.sweep.workers import (
    STOPPED,
    Progress,
    SweepRun,
    Worker,
    check_runs,
    check_unchanged,
    environment_for,
    prepare_texts,
    start,
    sweep_runs,
    train_runs,
)
from gptlite.cli.terminal import emit, next_commands
from gptlite.cli.train.configs import Configs
from gptlite.cli.train.options import TrainOptions
from gptlite.config.grid import Axes, load_points, points, read_axes
from gptlite.errors import ConfigError, Diverged, Interrupted, Problem, gathered, located
from gptlite.formatting import Say, and_more
from gptlite.runs.compare import group_seeds
from gptlite.runs.run import check_name
from gptlite.training.signals import Signals


def run_sweep(options: TrainOptions) -> None:
    """Train every point of the grid that is not trained yet, each in a process of its own; print the table of all."""
    name, configs, runs = plan_sweep(options)
    jobs = options.jobs or 1
    with located_text(options.data):
        check_runs(name, runs, continue_=options.continue_)
        progress = Progress(name, runs, jobs, quiet=options.quiet)
        prepare_texts(runs, progress.say)
    environment = {**configs.environment, **environment_for(min(jobs, len(runs)))}

    def start_run(run: SweepRun) -> Worker:
        check_unchanged(run, runs, configs)
        return start(run, options.of_every_run, environment, to_terminal=jobs == 1)

    signals = Signals(f"sweep {name}", None, progress.answer_signal, "stopping all runs after their updates")
    codes = train_runs(runs, start_run, jobs, progress, signals)
    if signals.received and (len(codes) < len(runs) or any(code in STOPPED for code in codes.values())):
        over = f"{sum(run.is_done for run in runs)} of {len(runs)} runs are finished"
        sentence = f"stopped; every run is saved. {over}. Continue with:\n  {options.to_continue_sweep}"
        raise Interrupted(signals.received, sentence, where=f"sweep {name}")
    emit(report(runs, codes, progress.say))
    if code := next((codes[run.name] for run in runs if codes[run.name]), 0):
        raise typer.Exit(code)


def plan_sweep(options: TrainOptions) -> tuple[str, Configs, Sequence[SweepRun]]:
    """Return the sweep's name, what loads its configs, and its runs.

    Raises ConfigError with every problem of options and points.
    """
    problems: list[Problem] = options.problems()
    axes: Axes = {}
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
        runs = sweep_runs(grid, load_points(configs.load, grid, "--sweep"))
    if problems:
        raise ConfigError(problems)
    configs = configs.timed(configs.asked(), runs)
    return name, configs, sweep_runs(grid, load_points(configs.load, grid, "--sweep"))


def report(runs: Sequence[SweepRun], codes: Mapping[str, int], say: Say) -> str:
    """Return the table, what failed, and the next commands: the best run first, without a mask last, seeds in one row.

    No figure depends on the clock, so a sweep that was killed and continued has the same table.

    codes: exit codes of the runs. say: called with a line for each damaged file.
    """
    groups = sort_rows(group_seeds(read_summaries([run for run in runs if run.started], say)), "best")
    table = as_table(groups, ("run", "state", "bits/byte", "at")) if groups else ""
    failed = [run.name for run in runs if codes[run.name] not in (0, Diverged.exit_code, *STOPPED)]
    table += f"failed: {and_more(failed, 3)}\n" if failed else ""
    # One without a mask cannot write, and its score cannot be compared.
    ranked = [group.first for group in groups if group.first.state == "finished" and not group.first.sees_ahead]
    handles = [shlex.quote(run.run.handle) for run in ranked]
    if not handles:
        return table
    compare = [f"runs diff {handles[0]} {handles[1]}"] if len(handles) > 1 else []
    commands = next_commands([f'sample {handles[0]} --prompt "..."', *compare], runs[0].path.parent)
    return table + "".join(f"{line}\n" for line in commands)
