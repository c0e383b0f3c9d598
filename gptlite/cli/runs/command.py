"""`gptlite runs`: list, compare, plot and remove runs."""

from __future__ import annotations

import difflib
import os
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Argument, Option, Typer

from gptlite.cli.files import output_path, write_output
from gptlite.cli.options import open_each
from gptlite.cli.terminal import Console, emit, on_one_line
from gptlite.cli.usage import Command, Commands
from gptlite.errors import ConfigError, Problem, RunError, gathered
from gptlite.formatting import and_more, counted

if TYPE_CHECKING:
    from gptlite.runs.run import Run

Sort = Annotated[
    str | None,
    Option(
        metavar="KEY",
        help="Sort by name, state, step, tokens, parameters, best, speed, elapsed, or a key of the config, "
        "smallest first. Default: when they started.",
    ),
]
Filter = Annotated[
    list[str] | None,
    Option(
        "--filter",
        metavar="EXPR",
        help="List only runs that match: a part of the name, or KEY=VALUE (state, or a key of the config). Repeatable.",
    ),
]
Names = Annotated[list[str], Argument(metavar="RUN", help="Names or folders of runs.")]
Yes = Annotated[bool, Option("--yes", "-y", help="Do not ask.")]

# What gptlite writes into the folder of a run, besides unfinished files.
WRITTEN = {
    *("config.yaml", "run.json", "finished.json", "diverged.json", "metrics.jsonl", "samples.jsonl"),
    *("tb", "checkpoints", ".lock"),
}

X_LABELS = {"step": "updates", "tokens": "tokens trained on", "seconds": "seconds of training"}


class RunsCommands(Commands):
    """The commands of `gptlite runs`, where `list` may be left out."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert `list` where no command is named. ConfigError for a misspelt command."""
        if args and not args[0].startswith("-") and args[0] not in self.commands and not Path(args[0]).exists():
            near = difflib.get_close_matches(args[0], self.commands, n=1)
            if near:
                sentence = f"there is no command or folder {args[0]}. Did you mean {near[0]}?"
                raise ConfigError(sentence, where=ctx.command_path)
        named = args and (args[0] in self.commands or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if named else ["list", *args])


app = Typer(
    name="runs",
    cls=RunsCommands,
    help="List, compare, plot and remove runs. Without a command: list.",
    rich_markup_mode=None,
    subcommand_metavar="[COMMAND] [ARGS]...",
)


@app.command("list", cls=Command)
def list_runs(
    folder: Annotated[
        str | None, Argument(metavar="DIR", help="The folder of runs. Default: $GPTLITE_RUNS, else runs.")
    ] = None,
    sort: Sort = None,
    filter_: Filter = None,
    no_fold: Annotated[bool, Option("--no-fold", help="Show each seed in its own row.")] = False,
    as_json: Annotated[bool, Option("--json", help="Print one JSON object.")] = False,
    as_csv: Annotated[bool, Option("--csv", help="Print comma-separated values.")] = False,
) -> None:
    """List runs and how their configs differ.

    Finished runs that differ only in run.seed share a row, with their mean and standard deviation.
    """
    if as_json and as_csv:
        raise ConfigError("--json and --csv exclude each other. Choose one.")
    from gptlite.cli.runs import table
    from gptlite.cli.tables import terminal_width
    from gptlite.runs.compare import RunGroup, group_seeds
    from gptlite.runs.run import runs_folder
    from gptlite.runs.summary import read_runs

    root = runs_folder() if folder is None else Path(os.path.expanduser(folder))
    runs, problems = read_runs(root)
    matching = table.filter_runs(runs, filter_ or []) if runs else []
    rows = table.sort_rows([RunGroup([run]) for run in matching] if no_fold else group_seeds(matching), sort)
    if as_json:
        emit(table.as_json(rows))
    elif as_csv:
        emit(table.as_csv(rows))
    elif rows:
        emit(table.as_table(rows, terminal_width()), styled=True)
    else:
        none = f"none of {counted(len(runs), 'run')} matches --filter" if runs else "no runs yet"
        Console().say(f"{root}: {none}")
    for problem in problems:
        Console().say(problem)


@app.command("diff", cls=Command)
def diff(
    a: Annotated[str, Argument(metavar="A", help="The name or folder of a run.")],
    b: Annotated[str, Argument(metavar="B", help="The name or folder of another run.")],
) -> None:
    """Compare two runs: configs, curves, samples.

    Curves are compared at equal tokens and at equal times.
    """
    from gptlite.cli.runs.diff import describe_differences
    from gptlite.cli.runs.table import read_summaries
    from gptlite.runs.summary import read_runs

    summaries = read_summaries(open_runs([a, b]), Console().say)
    folders = dict.fromkeys(each.run.path.resolve().parent for each in summaries)
    others = [other for folder in folders for other in read_runs(folder)[0]]
    for text in describe_differences(summaries[0], summaries[1], others):
        emit(text, styled=True)


@app.command("plot", cls=Command)
def plot(
    names: Names,
    x: Annotated[Literal["step", "tokens", "seconds"], Option(help="The x axis.")] = "tokens",
    out: Annotated[
        str | None, Option("--out", "-o", metavar="FILE", help="The SVG file. Default: RUN-curves.svg.")
    ] = None,
) -> None:
    """Plot validation curves as an SVG file."""
    from gptlite.cli.runs.table import read_summaries
    from gptlite.runs.compare import curve_points
    from gptlite.runs.summary import read_curve
    from gptlite.views.line_plot import LINEAR, Line, line_plot

    runs = read_summaries(open_runs(names), Console().say)
    path = output_path([run.name for run in runs], out, "curves.svg")
    times = Counter(run.name for run in runs)
    lines, problems = [], []
    for run in runs:
        curve = curve_points(read_curve(run), x)
        if curve:
            xs, ys = zip(*curve, strict=True)
            lines.append(Line(run.name if times[run.name] == 1 else str(run.run.path), ys, xs))
        else:
            sentence = "this run has no evaluations to plot. Train it further, or leave it out."
            problems.append(Problem(sentence, str(run.run.path)))
    if problems:
        raise RunError(problems)
    title, y_label = "Validation: bits per byte", "bits per byte"
    write_output(path, line_plot(lines, title=title, x_label=X_LABELS[x], y_label=y_label, x_axis=LINEAR))
    emit(f"{path}\n")


@app.command("rm", cls=Command)
def remove(names: Names, yes: Yes = False) -> None:
    """Remove runs, after asking.

    Their checkpoints are removed too. A run in training is refused, and a folder that holds anything else.
    """
    runs = open_runs(names)
    check_removable(runs)
    for run in runs:
        emit(f"{describe_size(run)}\n")
    if not yes and not confirm_removal(len(runs)):
        emit("nothing was removed\n")
        return
    for run in runs:
        with run.lock("gptlite runs rm"):
            run.remove()
        emit(f"removed {run.path}\n")


@app.command("verify", cls=Command)
def verify(
    names: Annotated[
        list[str] | None, Argument(metavar="[RUN]...", help="Names or folders of runs. Default: all.")
    ] = None,
) -> None:
    """Check every file of runs against its digest. Nothing is changed.

    Says for each run which checkpoint a resume would use. The exit code is 2 if a file is damaged.
    """
    from gptlite.runs.run import Run, runs_folder
    from gptlite.training.verify import check_run

    runs = open_runs(names) if names else Run.all(runs_folder())
    problems: list[Problem] = []
    for run in runs:
        checks, newest = check_run(run)
        for check in checks:
            emit(f"{check.path}  {check.problem or 'ok'}\n")
        damaged = [check for check in checks if check.problem is not None]
        resumes = "a resume finds no checkpoint" if newest is None else f"a resume uses step {newest.step}"
        emit(f"{run.name}: {counted(len(checks), 'file')}, {len(damaged)} damaged; {resumes}\n")
        problems += [Problem(check.problem or "", str(check.path)) for check in damaged]
    if problems:
        raise RunError(problems)


def check_removable(runs: Sequence[Run]) -> None:
    """RunError for runs in training, for links, as removing one would leave the run, and for what may be no run."""
    problems = [Problem("this run is in training. Stop it first.", str(run.path)) for run in runs if run.locked]
    problems += [
        Problem(f"this is a link to a run. Name the run's own folder, {run.path.resolve()}.", str(run.path))
        for run in runs
        if run.path.is_symlink()
    ]
    for run in runs:
        with gathered(problems):
            check_is_ours(run.path)
    if problems:
        raise RunError(problems)


def check_is_ours(folder: Path) -> None:
    """RunError unless a folder has a run.json, which may be damaged, and nothing in it but what gptlite writes."""
    from gptlite.storage import files

    with files.storage_errors(folder, "read"):
        names = sorted(os.listdir(folder))
    foreign = [on_one_line(name) for name in names if name not in WRITTEN and files.TEMP_MARK not in name]
    if "run.json" not in names:
        raise RunError("this may be no run of gptlite, since it has no run.json. Remove it by hand.", str(folder))
    if foreign:
        shown = and_more(foreign, 3)
        raise RunError(f"gptlite did not write {shown} in this folder. Remove it by hand.", str(folder))


def describe_size(run: Run) -> str:
    """Return the number of a run's checkpoints and files, and their bytes."""
    from gptlite.storage import files

    with files.storage_errors(run.path, "read"):
        sizes = [(Path(folder) / name).lstat().st_size for folder, _, names in os.walk(run.path) for name in names]
        checkpoints = len(list(run.checkpoints.glob("step-*")))
    return f"{run.path}: {counted(checkpoints, 'checkpoint')}, {counted(len(sizes), 'file')}, {sum(sizes):,} bytes"


def confirm_removal(n_runs: int) -> bool:
    """Ask the user. ConfigError if there is no answer."""
    emit(f"remove {counted(n_runs, 'run')}? [y/N] ")
    try:
        return input().strip().lower() in ("y", "yes")
    except EOFError:
        emit("\n")
        raise ConfigError("there was no answer, so nothing was removed. Give --yes to remove without asking.") from None


def open_runs(names: Sequence[str]) -> list[Run]:
    """Open the runs with these names or folders. RunError with every problem."""
    from gptlite.runs.run import Run, runs_folder

    return open_each(names, partial(Run.open, runs_folder()))
