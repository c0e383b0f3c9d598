"""`scripts/bench lessons`: configs/lesson-*.yaml on a text, each with several seeds: the table of docs/lessons.md."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.figures import table

SHOWN = (1, 10)  # the updates whose gradients are shown, before the last
HEAD = ("", "loss", "(min to max)", "first block at 1", "10", "end", "last block at 1", "10", "end")


@dataclass(frozen=True)
class Row:
    """One training. loss: of the validation text at the end, in nats per token, inf where training diverged.

    first_block, last_block: norm of the gradient before clipping, at the updates SHOWN and the last.
    """

    lesson: str
    seed: int
    loss: float
    first_block: list[float]
    last_block: list[float]
    seconds: float


def paths() -> list[Path]:
    """The lessons: first the one that the others differ from."""
    from gptlite.config.loading import builtin_folder

    return sorted(
        builtin_folder("configs").glob("lesson-*.yaml"), key=lambda path: (path.stem != "lesson-base", path.stem)
    )


def train(path: Path, text: Path, seed: int, scratch: Path) -> Row:
    """One lesson with one seed, evaluated at its end."""
    from gptlite.config.loading import load_config
    from gptlite.errors import Diverged
    from gptlite.training import launch

    cfg = load_config(path)
    steps = cfg.train.updates
    values = {"data.source": str(text), "data.dir": str(scratch / "data"), "run.seed": seed}
    values |= {"eval.every": steps, "save.every": steps, "log.every": 1, "log.tensorboard": False}
    name = f"{path.stem}-{seed}"
    try:
        launch.start(cfg.with_values(values), base=path.stem, name=name, root=scratch / "runs")
    except Diverged as problem:
        print(f"{name}: {problem}")
    lines = [json.loads(line) for line in (scratch / "runs" / name / "metrics.jsonl").read_text().splitlines()]
    return row_of(path.stem, seed, cfg.model.n_layer, lines)


def row_of(lesson: str, seed: int, n_layer: int, lines: Sequence[Mapping[str, Any]]) -> Row:
    """What the lines of a metrics.jsonl with every update say."""
    updates = {line["step"]: line for line in lines if line["split"] == "train"}
    shown = [updates[step] for step in (*SHOWN, max(updates))]
    losses = [line["loss"] for line in lines if line["split"] == "val"]
    first, last = ([line[f"grad_norm/block_{i}"] for line in shown] for i in (1, n_layer))
    return Row(lesson, seed, losses[-1] if losses else math.inf, first, last, shown[-1]["time"]["elapsed"])


def cells(rows: list[Row]) -> list[str]:
    """A line of the table: over the seeds of a lesson, mean and extremes of the loss, medians of the norms."""
    losses = [row.loss for row in rows]
    norms = zip(*([*row.first_block, *row.last_block] for row in rows), strict=True)
    spread = f"{min(losses):.3f} to {max(losses):.3f}"
    shown = [f"{statistics.median(norm):.2g}" for norm in norms]
    return [rows[0].lesson, f"{statistics.mean(losses):.3f}", spread, *shown]


def measure(text: Path, seeds: int, scratch: Path) -> list[dict[str, Any]]:
    """Train them all, and print the table; a row for each run."""
    rows: list[Row] = []
    for seed in range(1, seeds + 1):
        for path in paths():
            rows.append(train(path, text, seed, scratch))
            print(f"{path.stem:25} seed {seed}  loss {rows[-1].loss:.4f}  {rows[-1].seconds:.0f} s", flush=True)
    by_lesson = [[row for row in rows if row.lesson == path.stem] for path in paths()]
    print("\n" + table([HEAD, *map(cells, by_lesson)]))
    return [asdict(row) for row in rows]
