"""`gptlite lesson`: train the configs of a lesson, configs/lesson-*.yaml, and show what comes of it."""

from __future__ import annotations

import difflib
import math
import re
import shlex
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from gptlite.cli.options import DataOption, located_text
from gptlite.cli.terminal import Console, emit, format_table
from gptlite.errors import ConfigError, Diverged
from gptlite.runs.run import Run

BASE = "lesson-base"
SEEDS = 3
ENTROPY = "attention_entropy/block_1"
NORMS = ("first block 1", "first 10", "first end", "last block 1", "last 10", "last end")
LEGEND = "loss: at the last update, in nats per token; first, last: norm of the gradient of the first and last block"
MEDIANS = {**dict.fromkeys(NORMS, "{:.2g}"), "entropy 0": "{:.2f}", "entropy end": "{:.2f}"}  # columns of the table


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
    from gptlite.runs.significance import MARGIN
    from gptlite.runs.summary import read_log, read_run
    from gptlite.training.reconcile import saved_config

    lessons = {path.stem.removeprefix("lesson-"): said for path in find_lessons() if (said := describe(path))}
    if name is None:
        named = ((short, f"{other.removeprefix('lesson-')} {what}") for short, (other, what) in lessons.items())
        emit("".join(f"{short:24} {said}\n" for short, said in named))
        return
    name = name.removeprefix("lesson-")
    if name not in lessons:
        near = difflib.get_close_matches(name, lessons, n=1)
        advice = f"Did you mean {near[0]}?" if near else f"There are {', '.join(lessons)}."
        raise ConfigError(f"there is no such lesson. {advice}", where=f"lesson {name}")
    console, folder = Console(), Path("lessons", "-".join(Path(text).stem for text in data or ["python-stdlib"]))
    rows, firsts = [], []
    for stem in (lessons[name][0], f"lesson-{name}"):
        runs = [Run(folder / f"{stem}-{seed}") for seed in range(1, seeds + 1)]
        for seed, run in enumerate(runs, start=1):
            console.say(f"{run.name}: seed {seed} of {seeds}")
            train_or_continue(stem, run, seed, data or (), console)
        scores = [score for run in runs if (score := read_run(run)[0].best_bits_per_byte) is not None]
        best = f"{statistics.mean(scores):.4f}" if scores else ""
        figures = [read_figures(saved_config(run).model.n_layer, read_log(run)) for run in runs]
        rows.append({"lesson": stem, "best bits/byte": best, **cells(stem, figures)})
        firsts.append(runs[0])
    columns = {header: [row[header] for row in rows] for header in rows[0] if any(row[header] for row in rows)}
    emit(f"\n{format_table(columns, numbers=list(columns)[1:])}{LEGEND}\n\n")
    verdict = judge_named(firsts, MARGIN)[2]
    more = [f"lesson {name} --seeds {2 * seeds}" + "".join(f" --data {shlex.quote(text)}" for text in data or ())]
    emit("".join(f"{line}\n" for line in replace(verdict, commands=more if verdict.commands else ()).lines()))
    path = write_report([str(run.path) for run in firsts], f"lesson-{name}.html", console)
    emit(f"\n{path}: curves and samples; open it in a browser\n")


def find_lessons() -> list[Path]:
    """Return the files of all lessons: first the one that most others differ from."""
    from gptlite.config.loading import builtin_folder

    found = builtin_folder("configs").glob("lesson-*.yaml")
    return sorted(found, key=lambda path: (path.stem != BASE, path.stem))


def describe(lesson: Path) -> tuple[str, str] | None:
    """Return the name of the lesson that this one differs from, and in what; None of the first one.

    The heading of its file says it: "# lesson-base.yaml with one attention head."
    """
    from gptlite.config.documents import read_heading

    heading = read_heading(lesson.read_text(encoding="utf-8")).replace("\n#", "")
    said = re.search(r"(lesson-[a-z-]+)\.yaml,? (.*?)\.(?:\s|$)", heading)
    return (said[1], said[2]) if said else None


def train_or_continue(config: str, run: Run, seed: int, data: Sequence[str], console: Console) -> None:
    """Train a run of a lesson to its end, from where it was stopped. That it diverges may be what the lesson shows."""
    from gptlite.cli.train.command import make_request
    from gptlite.cli.train.options import TrainOptions
    from gptlite.training.launch import open_session

    sets = ["log.every=1", "run.threads=1", f"run.seed={seed}", f"run.dir={run.path.parent}"]
    options = TrainOptions(config=config, set_=sets, data=data, name=run.name, continue_=True)
    with located_text(data, None), open_session(make_request(options, console), console) as session:
        try:
            session.train()
        except Diverged as problem:
            console.say(str(problem))


def read_figures(n_layer: int, lines: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return by header what the lines of a metrics.jsonl with every update say, and the seconds of training.

    loss: of the validation text at the end, in nats per token, inf where training diverged. first, last: norm of the
    gradient of that block before clipping. entropy: of the attention of the first block, in nats, where it was logged.
    """
    updates = {line["step"]: line for line in lines if line["split"] == "train"}
    evaluations = {line["step"]: line for line in lines if line["split"] == "val"}
    end = max(updates)
    losses = [line["loss"] for line in evaluations.values() if "loss" in line]
    found = {"loss": losses[-1] if losses else math.inf, "seconds": updates[end]["time"]["elapsed"]}
    for name, block in (("first", 1), ("last", n_layer)):
        for moment, step in (("block 1", 1), ("10", 10), ("end", end)):
            found[f"{name} {moment}"] = updates[step][f"grad_norm/block_{block}"]
    for moment, step in (("0", 0), ("end", end)):
        if ENTROPY in evaluations.get(step, ()):
            found[f"entropy {moment}"] = evaluations[step][ENTROPY]
    return found


def cells(lesson: str, seeds: Sequence[Mapping[str, float]]) -> dict[str, str]:
    """Return a row of the table by header: over the seeds, mean and extremes of the loss, medians of the rest."""
    losses = [figures["loss"] for figures in seeds]
    row = {"lesson": lesson, "loss": f"{statistics.mean(losses):.3f}"}
    row["min to max"] = f"{min(losses):.3f} to {max(losses):.3f}"
    for header, form in MEDIANS.items():
        values = [figures[header] for figures in seeds if header in figures]
        row[header] = form.format(statistics.median(values)) if values else ""
    return row
