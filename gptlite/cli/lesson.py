"""`gptlite lesson`: train the configs of a lesson, and show what comes of it."""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from gptlite.cli.options import DataOption, located_text
from gptlite.cli.terminal import Console, emit, format_table
from gptlite.errors import ConfigError, Diverged

if TYPE_CHECKING:
    from gptlite.runs.run import Run

SEEDS = 3


def lesson(
    name: Annotated[
        str | None, Argument(metavar="NAME", help="A lesson, such as post-norm. Default: list them.")
    ] = None,
    data: DataOption = None,
    seeds: Annotated[int, Option(metavar="N", help="Train each config with the seeds 1 to N.", min=1)] = SEEDS,
) -> None:
    """Train a lesson and the one that it is compared with, with several seeds: the table, the verdict and a page.

    The runs are in lessons/, below the name of the text; the same command goes on where it was stopped. docs/lessons.md
    says what each lesson shows.
    """
    from gptlite.cli.runs.diff import judge_named
    from gptlite.cli.runs.report import write_report
    from gptlite.course.lessons import HEAD, Row, cells, describe, find_lessons
    from gptlite.runs.run import Run
    from gptlite.runs.significance import MARGIN
    from gptlite.runs.summary import read_log, read_run
    from gptlite.training.reconcile import saved_config

    lessons = {path.stem.removeprefix("lesson-"): said for path in find_lessons() if (said := describe(path))}
    if name is None:
        emit("".join(f"{short:24} {other} {what}\n" for short, (other, what) in lessons.items()))
        return
    name = name.removeprefix("lesson-")
    if name not in lessons:
        raise ConfigError(f"there is no such lesson. There are {', '.join(lessons)}.", where=f"lesson {name}")
    console, folder = Console(), Path("lessons", "-".join(Path(text).stem for text in data or ["python-stdlib"]))
    rows, firsts = [], []
    for stem in (lessons[name][0], f"lesson-{name}"):
        runs = [Run(folder / f"{stem}-{seed}") for seed in range(1, seeds + 1)]
        for seed, run in enumerate(runs, start=1):
            console.say(f"{run.name}: seed {seed} of {seeds}")
            train_or_continue(stem, run, seed, data or (), console)
        scores = [score for run in runs if (score := read_run(run)[0].best_bits_per_byte) is not None]
        shown = cells([Row.of(stem, saved_config(run).model.n_layer, read_log(run)) for run in runs])
        rows.append([shown[0], f"{statistics.mean(scores):.4f}" if scores else "", *shown[1:]])
        firsts.append(runs[0])
    columns = {header: [row[i] for row in rows] for i, header in enumerate((HEAD[0], "best bits/byte", *HEAD[1:]))}
    emit(f"\n{format_table({header: column for header, column in columns.items() if any(column)}, numbers=HEAD[1:])}")
    emit(
        "loss: at the last update, in nats per token; first, last: norm of the gradient of the first and last block\n\n"
    )
    verdict = judge_named(firsts, MARGIN)[2]
    more = [f"lesson {name} --seeds {2 * seeds}" + "".join(f" --data {shlex.quote(text)}" for text in data or ())]
    emit("".join(f"{line}\n" for line in replace(verdict, commands=more if verdict.commands else ()).lines()))
    path = write_report([str(run.path) for run in firsts], f"lesson-{name}.html", console)
    emit(f"\n{path}: curves and samples; open it in a browser\n")


def train_or_continue(config: str, run: Run, seed: int, data: Sequence[str], console: Console) -> None:
    """Train a run of a lesson to its end, from where it was stopped. That it diverges may be what the lesson shows."""
    from gptlite.cli.train.command import make_request
    from gptlite.cli.train.options import TrainOptions
    from gptlite.training.launch import open_session

    sets = ["log.every=1", "run.threads=1", f"run.seed={seed}", f"run.dir={run.path.parent}"]
    options = TrainOptions(config=config, sets=sets, data=data, name=run.name, continue_=True)
    with located_text(data, None), open_session(make_request(options, console), console) as session:
        try:
            session.train()
        except Diverged as problem:
            console.say(str(problem))
