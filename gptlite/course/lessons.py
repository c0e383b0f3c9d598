"""The lessons, configs/lesson-*.yaml: which other one each is compared with, and the rows of their table."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gptlite.config.documents import read_heading
from gptlite.config.loading import builtin_folder

BASE = "lesson-base"
ENTROPY = "attention_entropy/block_1"
SHOWN = (1, 10)  # the updates whose gradients are shown, before the last
NORMS = ("first block 1", "first 10", "first end", "last block 1", "last 10", "last end")
HEAD = ("lesson", "loss", "min to max", *NORMS, "entropy 0", "entropy end")


def find_lessons() -> list[Path]:
    """Return the files of all lessons: first the one that most others differ from."""
    found = builtin_folder("configs").glob("lesson-*.yaml")
    return sorted(found, key=lambda path: (path.stem != BASE, path.stem))


def describe(lesson: Path) -> tuple[str, str] | None:
    """Return the name of the lesson that this one differs from, and in what; None of the first one.

    The heading of its file says it: "# lesson-base.yaml with one attention head."
    """
    heading = read_heading(lesson.read_text(encoding="utf-8")).replace("\n#", "")
    said = re.search(r"(lesson-[a-z-]+)\.yaml,? (.*?)\.(?:\s|$)", heading)
    return (said[1], said[2]) if said else None


@dataclass(frozen=True)
class Row:
    """One training. loss: of the validation text at the end, in nats per token, inf where training diverged.

    first_block, last_block: norm of the gradient before clipping, at the updates SHOWN and the last.
    entropy: of the attention of the first block, before the first update and at the end, in nats; None where it was not
    logged.
    """

    lesson: str
    loss: float
    first_block: list[float]
    last_block: list[float]
    entropy: list[float | None]
    seconds: float

    @classmethod
    def of(cls, lesson: str, n_layer: int, lines: Sequence[Mapping[str, Any]]) -> Row:
        """Return what the lines of a metrics.jsonl with every update say."""
        updates = {line["step"]: line for line in lines if line["split"] == "train"}
        shown = [updates[step] for step in (*SHOWN, max(updates))]
        evaluations = [line for line in lines if line["split"] == "val"]
        losses = [line["loss"] for line in evaluations if "loss" in line]
        first, last = ([line[f"grad_norm/block_{i}"] for line in shown] for i in (1, n_layer))
        entropies = {line["step"]: line[ENTROPY] for line in evaluations if ENTROPY in line}
        entropy = [entropies.get(step) for step in (0, max(updates))]
        return cls(lesson, losses[-1] if losses else math.inf, first, last, entropy, shown[-1]["time"]["elapsed"])


def cells(rows: Sequence[Row]) -> list[str]:
    """Return a line of the table: over the seeds of a lesson, mean and extremes of the loss, medians of the rest."""
    losses = [row.loss for row in rows]
    norms = zip(*([*row.first_block, *row.last_block] for row in rows), strict=True)
    entropies = zip(*(row.entropy for row in rows), strict=True)
    spread = f"{min(losses):.3f} to {max(losses):.3f}"
    shown = [f"{statistics.median(norm):.2g}" for norm in norms]
    logged = [[x for x in entropy if x is not None] for entropy in entropies]
    shown += [f"{statistics.median(entropy):.2f}" if entropy else "" for entropy in logged]
    return [rows[0].lesson, f"{statistics.mean(losses):.3f}", spread, *shown]
