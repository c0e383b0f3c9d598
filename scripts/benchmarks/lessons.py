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

ENTROPY = "attention_entropy/block_1"
SHOWN = (1, 10)  # the updates whose gradients are shown, before the last
NORMS = ("first block at 1", "10", "end", "last block at 1", "10", "end")
HEAD = ("", "loss", "(min to max)", *NORMS, "entropy at 0", "end")


@dataclass(frozen=True)
class Row:
    """One training. loss: of the validation text at the end, in nats per token, inf where training diverged.

    first_block, last_block: norm of the gradient before clipping, at the updates SHOWN and the last.
    entropy: of the attention of the first block, before the first update and at the end, in nats; None where it was not
    logged.
    """

    lesson: str
    seed: int
    loss: float
    first_block: list[float]
    last_block: list[float]
    entropy: list[float | None]
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
    from gptlite.training.launch import Request, open_session

    cfg = load_config(path)
    steps = cfg.train.updates
    values = {"data.source": str(text), "data.dir": str(scratch / "data"), "run.seed": seed}
    values |= {"run.threads": 1, "eval.every": steps, "save.every": steps, "log.every": 1, "log.tensorboard": False}
    name = f"{path.stem}-{seed}"
    try:
        with open_session(Request(cfg.with_values(values), name, root=scratch / "runs")) as session:
            session.train()
    except Diverged as problem:
        print(f"{name}: {problem}")
    lines = [json.loads(line) for line in (scratch / "runs" / name / "metrics.jsonl").read_text().splitlines()]
    return row_of(path.stem, seed, cfg.model.n_layer, lines)


def row_of(lesson: str, seed: int, n_layer: int, lines: Sequence[Mapping[str, Any]]) -> Row:
    """What the lines of a metrics.jsonl with every update say."""
    updates = {line["step"]: line for line in lines if line["split"] == "train"}
    shown = [updates[step] for step in (*SHOWN, max(updates))]
    evaluations = [line for line in lines if line["split"] == "val"]
    losses = [line["loss"] for line in evaluations if "loss" in line]
    first, last = ([line[f"grad_norm/block_{i}"] for line in shown] for i in (1, n_layer))
    entropies = {line["step"]: line[ENTROPY] for line in evaluations if ENTROPY in line}
    entropy = [entropies.get(step) for step in (0, max(updates))]
    loss = losses[-1] if losses else math.inf
    return Row(lesson, seed, loss, first, last, entropy, shown[-1]["time"]["elapsed"])


def cells(rows: list[Row]) -> list[str]:
    """A line of the table: over the seeds of a lesson, mean and extremes of the loss, medians of the rest."""
    losses = [row.loss for row in rows]
    norms = zip(*([*row.first_block, *row.last_block] for row in rows), strict=True)
    entropies = zip(*(row.entropy for row in rows), strict=True)
    spread = f"{min(losses):.3f} to {max(losses):.3f}"
    shown = [f"{statistics.median(norm):.2g}" for norm in norms]
    logged = [[x for x in entropy if x is not None] for entropy in entropies]
    shown += [f"{statistics.median(entropy):.2f}" if entropy else "" for entropy in logged]
    return [rows[0].lesson, f"{statistics.mean(losses):.3f}", spread, *shown]


def measure(text: Path, seeds: int, names: Sequence[str], scratch: Path) -> list[dict[str, Any]]:
    """Train the named lessons, and print the table; a row for each run."""
    rows: list[Row] = []
    chosen = [path for path in paths() if path.stem in names]
    for seed in range(1, seeds + 1):
        for path in chosen:
            rows.append(train(path, text, seed, scratch))
            print(f"{path.stem:25} seed {seed}  loss {rows[-1].loss:.4f}  {rows[-1].seconds:.0f} s", flush=True)
    by_lesson = [[row for row in rows if row.lesson == path.stem] for path in chosen]
    print("\n" + table([HEAD, *map(cells, by_lesson)]))
    return [asdict(row) for row in rows]
