"""`gptlite runs`: list, compare and verify runs; and `gptlite report`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option, Typer

from gptlite.cli.options import open_runs
from gptlite.cli.terminal import Console, emit
from gptlite.cli.usage import Command, Commands
from gptlite.errors import ConfigError, Problem, RunError
from gptlite.formatting import counted
from gptlite.runs.run import Run, runs_folder
from gptlite.runs.significance import MARGIN


class RunsCommands(Commands):
    """The commands of `gptlite runs`, where `list` may be left out."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert `list` where no command is named."""
        named = args and (args[0] in self.commands or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if named else ["list", *args])


app = Typer(
    name="runs",
    cls=RunsCommands,
    help="List, compare and verify runs. Without a command: list.",
    rich_markup_mode=None,
    subcommand_metavar="[COMMAND] [ARGS]...",
)


@app.command("list", cls=Command)
def list_runs(
    folder: Annotated[
        str | None, Argument(metavar="DIR", help="The folder of runs. Default: $GPTLITE_RUNS, else runs.")
    ] = None,
    sort: Annotated[
        str | None,
        Option(
            metavar="KEY",
            help="Sort by name, state, step, tokens, parameters, best, speed, elapsed, or a key of the config, "
            "smallest first. Default: when they started.",
        ),
    ] = None,
    filter_: Annotated[
        list[str] | None,
        Option(
            "--filter",
            metavar="EXPR",
            help="List only runs that match: a part of the name, or KEY=VALUE (state, or a key of the config). "
            "Repeatable.",
        ),
    ] = None,
    no_fold: Annotated[bool, Option("--no-fold", help="Show each seed in its own row.")] = False,
    as_json: Annotated[bool, Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """List runs and how their configs differ.

    Finished runs that differ only in run.seed share a row, with their mean and standard deviation.
    """
    from gptlite.cli.runs import table
    from gptlite.runs.compare import RunGroup, group_seeds, warn_of_differences
    from gptlite.runs.summary import read_runs

    root = runs_folder() if folder is None else Path(os.path.expanduser(folder))
    runs, problems = read_runs(root)
    matching = table.filter_runs(runs, filter_ or []) if runs else []
    rows = table.sort_rows([RunGroup([run]) for run in matching] if no_fold else group_seeds(matching), sort)
    if as_json:
        emit(table.as_json(rows))
    elif rows:
        emit(table.as_table(rows))
        problems += filter(None, [warn_of_differences(rows)])
    else:
        none = f"none of {counted(len(runs), 'run')} matches --filter" if runs else "no runs yet"
        Console().say(f"{root}: {none}")
    for problem in problems:
        Console().say(problem)


ByOption = Annotated[
    str | None,
    Option(metavar="KEY", help="Instead of B: compare the runs that differ from A in this key alone, as in a sweep."),
]
MarginOption = Annotated[
    float,
    Option(metavar="PERCENT", help="The largest difference that is not relevant, in % of the score.", min=0, max=99),
]
ExitCodeOption = Annotated[
    bool,
    Option("--exit-code", help="Exit with 0 where A is better, 10 where B is, 11 no relevant difference, 12 unknown."),
]


@app.command("diff", cls=Command)
def diff(
    a: Annotated[str, Argument(metavar="A", help="The name or folder of a run.")],
    b: Annotated[str | None, Argument(metavar="B", help="The name or folder of another run.")] = None,
    by: ByOption = None,
    margin: MarginOption = MARGIN,
    as_json: Annotated[bool, Option("--json", help="Print one JSON object.")] = False,
    exit_code: ExitCodeOption = False,
) -> None:
    """Compare two runs: configs, samples, and which setting is better over all of its seeds."""
    from gptlite.cli.runs import diff
    from gptlite.cli.runs.table import read_summaries

    if (b is None) == (by is None):
        raise ConfigError("name two runs, or one run and --by KEY.", "gptlite runs diff")
    if by is not None and exit_code:
        raise ConfigError("the exit code tells about two runs. Leave one of the two out.", "--exit-code with --by")
    runs = open_runs([a] if b is None else [a, b])
    if by is not None:
        (summary,) = read_summaries(runs, Console().say)
        found = *diff.find_values(summary, by, diff.runs_in_folders_of([summary])), margin
        emit(diff.json_of_values(*found) if as_json else diff.table_of_values(*found))
        return
    summaries, names, verdict = diff.judge_named(runs, margin)
    for text in [verdict.as_json()] if as_json else diff.describe(summaries, names, verdict):
        emit(text)
    if exit_code:
        raise typer.Exit(diff.CODES[verdict.answer])


def report(
    runs: Annotated[
        list[str] | None, Argument(metavar="[RUN]...", help="Names or folders of runs. Default: the newest.")
    ] = None,
    out: Annotated[str | None, Option(metavar="FILE", help="The file. Default: RUN-report.html.")] = None,
) -> None:
    """Write figures, curves, samples and the verdict of runs into one HTML file. Other seeds of a run come with it."""
    from gptlite.cli.runs.report import write_report

    emit(f"{write_report(runs or ['latest'], out, Console())}\n")


@app.command("verify", cls=Command)
def verify(
    names: Annotated[
        list[str] | None, Argument(metavar="[RUN]...", help="Names or folders of runs. Default: all.")
    ] = None,
) -> None:
    """Check every file of runs against its digest. Nothing is changed.

    Says for each run which checkpoint a resume would use. The exit code is 2 if a file is damaged.
    """
    from gptlite.training.verify import check_run

    runs = open_runs(names) if names else Run.all(runs_folder())
    problems: list[Problem] = []
    for run in runs:
        checks, newest = check_run(run)
        for path, problem in checks:
            emit(f"{path}  {problem or 'ok'}\n")
        damaged = [Problem(problem, str(path)) for path, problem in checks if problem is not None]
        resumes = "a resume finds no checkpoint" if newest is None else f"a resume uses step {newest.step}"
        emit(f"{run.name}: {counted(len(checks), 'file')}, {len(damaged)} damaged; {resumes}\n")
        problems += damaged
    if problems:
        raise RunError(problems)
