"""`gptlite runs`: list, compare, draw and remove runs."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gptlite.cli.terminal import Console, emit
from gptlite.cli.usage import Command, Commands
from gptlite.errors import ConfigError, Problem, RunError, gathered

if TYPE_CHECKING:
    from gptlite.runs.compare import Axis
    from gptlite.runs.run import Run
    from gptlite.runs.summary import Summary

Folder = Annotated[
    str | None, typer.Argument(metavar="DIR", help="The folder of runs. Default: $GPTLITE_RUNS, else runs.")
]
Sort = Annotated[
    str | None,
    typer.Option(
        "--sort",
        metavar="KEY",
        help="Smallest first: name, state, step, tokens, parameters, best, speed, elapsed, or a key of the config. "
        "Default: the start.",
    ),
]
Filter = Annotated[
    list[str] | None,
    typer.Option(
        "--filter", metavar="EXPR", help="Only these: a part of the name, or KEY=VALUE (state, a key). May be repeated."
    ),
]
NoFold = Annotated[bool, typer.Option("--no-fold", help="A row for each run, also of those that differ in run.seed.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Csv = Annotated[bool, typer.Option("--csv", help="Print comma-separated values.")]
Names = Annotated[list[str], typer.Argument(metavar="RUN", help="Names or folders of runs.")]
First = Annotated[str, typer.Argument(metavar="A", help="A run's name or folder.")]
Second = Annotated[str, typer.Argument(metavar="B", help="Another's.")]
X = Annotated[str, typer.Option("--x", metavar="step|tokens|seconds", help="What the curves are drawn over.")]
Out = Annotated[
    str | None, typer.Option("--out", "-o", metavar="FILE", help="Where the picture goes. Default: RUN-curves.svg.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]

AXES: dict[str, Axis] = {"step": "step", "tokens": "tokens", "seconds": "seconds"}


class RunsCommands(Commands):
    """The commands behind `gptlite runs`; what names none of them belongs to the list."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words up to the command's name, which is `list` where none is given."""
        if args and not args[0].startswith("-") and args[0] not in self.commands and not Path(args[0]).exists():
            near = difflib.get_close_matches(args[0], self.commands, n=1)
            if near:
                raise ConfigError(f"{ctx.command_path} = {args[0]}: no folder, no command; did you mean {near[0]}?")
        named = args and (args[0] in self.commands or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if named else ["list", *args])


app = typer.Typer(
    name="runs",
    cls=RunsCommands,
    help="List, compare, draw and remove runs. Without a command: list.",
    rich_markup_mode=None,
    subcommand_metavar="[COMMAND] [ARGS]...",
)


@app.command("list", cls=Command)
def list_runs(
    folder: Folder = None,
    sort: Sort = None,
    filter_: Filter = None,
    no_fold: NoFold = False,
    as_json: Json = False,
    as_csv: Csv = False,
) -> None:
    """List runs: their state, their figures, what their configs differ in.

    Finished runs that differ only in run.seed are one row, with mean and deviation. What cannot be read is named on
    standard error.
    """
    if as_json and as_csv:
        raise ConfigError("--json = given: not with --csv; one at a time")
    from gptlite.cli.runs import select, table
    from gptlite.cli.tables import terminal_width
    from gptlite.runs.compare import RunGroup, group_seeds
    from gptlite.runs.run import runs_folder
    from gptlite.runs.summary import read_runs

    root = runs_folder() if folder is None else Path(folder).expanduser()
    runs, problems = read_runs(root)
    chosen = select.chosen(runs, filter_ or []) if runs else []
    rows = select.ordered([RunGroup([run]) for run in chosen] if no_fold else group_seeds(chosen), sort)
    if as_json:
        emit(table.as_json(rows))
    elif as_csv:
        emit(table.as_csv(rows))
    elif rows:
        emit(table.as_table(rows, terminal_width()))
    else:
        Console().say(f"{root}: {f'no run of {len(runs)} fits --filter' if runs else 'no run yet'}")
    for problem in problems:
        Console().say(problem)


@app.command("diff", cls=Command)
def diff(a: First, b: Second) -> None:
    """Put two runs side by side: configs, curves, samples.

    Curves are compared at equal tokens and at equal times.
    """
    from gptlite.cli.runs.diff import compared
    from gptlite.runs.summary import read_runs

    summaries = summaries_of([a, b])
    folders = dict.fromkeys(each.run.path.resolve().parent for each in summaries)
    others = [other for folder in folders for other in read_runs(folder)[0]]
    for part in compared(summaries[0], summaries[1], others):
        emit(part)


@app.command("plot", cls=Command)
def plot(names: Names, x: X = "tokens", out: Out = None) -> None:
    """Draw validation curves as an SVG file: bits per byte over tokens, steps or seconds."""
    if x not in AXES:
        raise ConfigError(f"--x = {x}: one of {', '.join(AXES)}; choose one")
    from gptlite.cli.runs.plot import draw

    emit(f"{draw(summaries_of(names), AXES[x], out)}\n")


@app.command("rm", cls=Command)
def remove(names: Names, yes: Yes = False) -> None:
    """Remove runs with their checkpoints, after asking.

    A run in training is refused.
    """
    from gptlite.cli.runs.removal import ask, check_removable, described

    runs = opened(names)
    check_removable(runs)
    for run in runs:
        emit(f"{described(run)}\n")
    if not yes and not ask(runs):
        emit("nothing is removed\n")
        return
    for run in runs:
        with run.lock("gptlite runs rm"):
            run.remove()
        emit(f"removed {run.path}\n")


def opened(words: Sequence[str]) -> list[Run]:
    """The runs that words name. RunError with every problem; for one given twice too."""
    from gptlite.runs.run import Run, runs_folder

    problems: list[Problem] = []
    runs: list[Run] = []
    for word in words:
        with gathered(problems):
            run = Run.open(runs_folder(), word)
            if any(run.path.resolve() == other.path.resolve() for other in runs):
                problems.append(Problem("this run is given twice; leave one out", word))
            runs.append(run)
    if problems:
        raise RunError(problems)
    return runs


def summaries_of(words: Sequence[str]) -> list[Summary]:
    """What the runs that words name say of themselves; what is damaged is named on standard error."""
    from gptlite.runs.summary import read_run

    found = []
    for run in opened(words):
        summary, problems = read_run(run)
        found.append(summary)
        for problem in problems:
            Console().say(problem)
    return found
