"""`scripts/bench minutes`: what --minutes reaches in its time, beside small.yaml with the same clock."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure, Spread

LATEST = 1.05  # of the minutes; a text that is used up earlier has no earliest


def train(name: str, text: str, minutes: float, more: list[str], scratch: Path) -> tuple[float, float]:
    """One training in a process of its own: the best bits per byte, and the minutes that it says it took."""
    keys = [f"run.dir={scratch / 'runs'}", f"data.dir={scratch / 'data'}"]
    arguments = [*more, "--data", text, "--name", name, *(word for key in keys for word in ("--set", key))]
    command = [sys.executable, "-P", "-m", "gptlite", "train", *arguments]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    best = json.loads((scratch / "runs" / name / "finished.json").read_text())["best_bits_per_byte"]
    seconds = re.search(rf"^{name}: .* tokens, (\d+) s; saved", said, re.MULTILINE)
    assert seconds is not None, said
    return best, int(seconds[1]) / 60


def measure(text: str, minutes: float, scratch: Path) -> tuple[list[dict[str, Any]], list[Figure]]:
    """--minutes first, then small.yaml."""
    contenders = {
        "--minutes": ["--minutes", f"{minutes:g}"],
        "small.yaml": ["--config", "small.yaml", "--set", f"train.max_minutes={minutes:g}"],
    }
    rows: list[dict[str, Any]] = []
    figures = []
    for number, (name, more) in enumerate(contenders.items()):
        best, taken = train(f"run-{number}", text, minutes, more, scratch)
        rows.append({"contender": name, "bits_per_byte": best, "minutes": taken})
        score, time = Spread(best, best, best), Spread(taken, taken, taken)
        figures.append(Figure(f"{name}: score", score, "bits per byte"))
        figures.append(Figure(f"{name}: time", time, "min", at_most=LATEST * minutes))
    ratio = rows[0]["bits_per_byte"] / rows[1]["bits_per_byte"]
    figures.append(Figure("--minutes over small.yaml", Spread(ratio, ratio, ratio), "x", at_most=1.0))
    return rows, figures
