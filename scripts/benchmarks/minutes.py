"""`scripts/bench minutes`: what --minutes reaches in its time, beside small.yaml with the same clock."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure, Spread

# Shapes that a person might choose: layers, width, BPE ids (0: characters), context, sequences per update, dropout.
BY_HAND = (
    (2, 64, 1024, 64, 32, 0.0),
    (4, 128, 0, 128, 16, 0.0),
    (4, 128, 2048, 128, 8, 0.0),
    (4, 128, 4096, 64, 32, 0.0),
    (3, 96, 8192, 64, 32, 0.0),
    (6, 192, 4096, 128, 16, 0.1),
)
WORSE = 1.05  # than the best of them, at most
LATEST = 1.05  # of the minutes; a text that is used up earlier has no earliest


def train(name: str, text: str, minutes: float, more: list[str], scratch: Path) -> tuple[float, float]:
    """One training in a process of its own: the best bits per byte, and the minutes that it says it took."""
    keys = [f"run.dir={scratch / 'runs'}", f"data.dir={scratch / 'data'}"]
    arguments = [*more, "--data", text, "--name", name, *(word for key in keys for word in ("--set", key))]
    command = [sys.executable, "-P", "-m", "gptlite", "train", *arguments]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    best = json.loads((scratch / "runs" / name / "finished.json").read_text())["best_bits_per_byte"]
    seconds = re.search(rf"^{name}: .* updates in (\d+) s, ", said, re.MULTILINE)
    assert seconds is not None, said
    return best, int(seconds[1]) / 60


def by_hand(minutes: float) -> dict[str, list[str]]:
    """The arguments of each of BY_HAND, by what to call it."""
    found = {}
    for layers, width, vocabulary, block, batch, dropout in BY_HAND:
        values = {
            "train.max_minutes": minutes,
            "tokenizer.kind": "bpe" if vocabulary else "char",
            "tokenizer.vocab_size": vocabulary or "null",
            "model.n_layer": layers,
            "model.n_embd": width,
            "model.n_head": width // 32,
            "model.block_size": block,
            "train.batch_size": batch,
            "model.dropout": dropout,
        }
        name = f"{layers} x {width}, {f'{vocabulary:,} ids' if vocabulary else 'characters'}, {block} x {batch}"
        found[name] = ["--config", "small.yaml", *(f"--set={key}={value}" for key, value in values.items())]
    return found


def measure(text: str, minutes: float, more: bool, scratch: Path) -> tuple[list[dict[str, Any]], list[Figure]]:
    """--minutes first, then small.yaml and, with more, each of BY_HAND."""
    contenders = {
        "--minutes": ["--minutes", f"{minutes:g}"],
        "small.yaml": ["--config", "small.yaml", "--set", f"train.max_minutes={minutes:g}"],
        **(by_hand(minutes) if more else {}),
    }
    rows: list[dict[str, Any]] = []
    figures = []
    for number, (name, arguments) in enumerate(contenders.items()):
        best, taken = train(f"run-{number}", text, minutes, arguments, scratch)
        rows.append({"contender": name, "bits_per_byte": best, "minutes": taken})
        score, time = Spread(best, best, best), Spread(taken, taken, taken)
        figures.append(Figure(f"{name}: score", score, "bits per byte"))
        figures.append(Figure(f"{name}: time", time, "min", at_most=LATEST * minutes))
    chosen, small, *others = (row["bits_per_byte"] for row in rows)
    limits = {"small.yaml": (small, 1.0)}
    if others:
        limits["the best by hand"] = (min(others), WORSE)
    for name, (best, most) in limits.items():
        ratio = chosen / best
        figures.append(Figure(f"--minutes over {name}", Spread(ratio, ratio, ratio), "x", at_most=most))
    return rows, figures
