"""`gptlite lesson`: train the configs of a lesson, and show what comes of it."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option

from gptlite.cli.options import DataOption
from gptlite.cli.report import write_report
from gptlite.cli.terminal import Console, emit, format_table
from gptlite.errors import ConfigError

SEEDS = 3


def lesson(
    name: Annotated[
        str | None, Argument(metavar="NAME", help="A lesson, such as post-norm. Default: list them.")
    ] = None,
    data: DataOption = None,
    seeds: Annotated[int, Option(metavar="N", help="Train each config with the seeds 1 to N.", min=1)] = SEEDS,
) -> None:
    """Train a lesson and the one that it is compared with, with several seeds: the table, the verdict and a page.

    The same command goes on where it was stopped. docs/lessons.md says what each lesson shows.
    """
    from gptlite.cli.runs.diff import judge_named
    from gptlite.cli.sweep import train_sweep
    from gptlite.cli.train.options import TrainOptions
    from gptlite.course.lessons import HEAD, Row, cells, compared_with, find_lessons
    from gptlite.runs.significance import MARGIN
    from gptlite.runs.summary import read_log

    pairs = {path.stem.removeprefix("lesson-"): other for path in find_lessons() if (other := compared_with(path))}
    if name is None:
        emit("".join(f"{lesson:24} beside {other}\n" for lesson, other in pairs.items()))
        return
    name = name.removeprefix("lesson-")
    if name not in pairs:
        raise ConfigError(f"there is no such lesson. There are {', '.join(pairs)}.", where=f"lesson {name}")
    rows, firsts = [], []
    for stem in (pairs[name], f"lesson-{name}"):
        options = TrainOptions(
            config=stem,
            sets=["log.every=1", "run.threads=1"],
            data=data or (),
            name=stem,
            continue_=True,
            sweep=[f"run.seed={','.join(map(str, range(1, seeds + 1)))}"],
        )
        runs, _ = train_sweep(options)
        rows.append(cells([Row.of(stem, run.cfg.model.n_layer, read_log(run)) for run in runs]))
        firsts.append(runs[0])
    columns = {header: [row[i] for row in rows] for i, header in enumerate(HEAD)}
    emit(f"\n{format_table(columns, numbers=HEAD[1:])}\n")
    emit("".join(f"{line}\n" for line in judge_named(firsts, MARGIN)[2].lines()))
    path = write_report([str(run.path) for run in firsts], f"lesson-{name}.html", Console())
    emit(f"\n{path}: curves and samples; open it in a browser\n")
