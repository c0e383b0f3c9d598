"""The measurements behind scripts/bench: each runs the program as a user would and prints one row per figure."""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

GPTLITE = [sys.executable, "-m", "gptlite"]


@dataclass(frozen=True)
class Figure:
    """A measured value and the most it may be."""

    name: str
    value: float
    limit: float
    unit: str

    @property
    def holds(self) -> bool:
        return self.value <= self.limit


def seconds(command: list[str], *, expect: int, cwd: Path, runs: int = 7) -> float:
    """Median wall time of a whole process; a warm-up comes first."""
    times = []
    for _ in range(runs + 1):
        started_at = time.perf_counter()
        done = subprocess.run(command, cwd=cwd, capture_output=True, check=False)
        times.append(time.perf_counter() - started_at)
        assert done.returncode == expect, done.stderr.decode()
    return statistics.median(times[1:])


def start(folder: Path) -> list[Figure]:
    """How fast the program answers."""
    wrong = [*GPTLITE, "train", "--set", "train.lr=fast"]
    return [
        Figure("gptlite --help", seconds([*GPTLITE, "--help"], expect=0, cwd=folder), 0.3, "s"),
        Figure("a config error", seconds(wrong, expect=2, cwd=folder), 1.0, "s"),
    ]


def train(folder: Path, *arguments: str) -> tuple[float, dict[str, float]]:
    """Wall time of `gptlite train`, and its last evaluation."""
    started_at = time.perf_counter()
    subprocess.run([*GPTLITE, "train", "--name", "bench", *arguments], cwd=folder, check=True)
    elapsed = time.perf_counter() - started_at
    lines = [json.loads(line) for line in (folder / "runs/bench/metrics.jsonl").read_text().splitlines()]
    return elapsed, [line for line in lines if line["split"] == "val"][-1]


def quickstart(folder: Path) -> list[Figure]:
    """The training of scripts/quickstart, the preparing of the text left out."""
    prepared = subprocess.run([*GPTLITE, "prepare"], cwd=folder, check=True, capture_output=True, text=True)
    manifest = json.loads((folder / prepared.stdout.split()[-1] / "manifest.json").read_text())
    elapsed, last = train(folder)
    return [
        Figure("quickstart: gptlite train", elapsed / 60, 3.0, "minutes"),
        Figure(
            "quickstart: validation, against xz -9", last["bits_per_byte"], manifest["reference"]["xz"], "bits/byte"
        ),
    ]


def shakespeare(folder: Path, text: Path) -> list[Figure]:
    """4 layers, 4 heads, 128 wide, block 64, 2,000 updates of 12 sequences; nanoGPT reaches 1.886."""
    values = {
        "data.source": text.absolute(),
        "tokenizer.kind": "char",
        "model.n_layer": 4,
        "model.n_head": 4,
        "model.n_embd": 128,
        "model.block_size": 64,
        "train.max_steps": 2000,
        "train.batch_size": 12,
        "eval.every": 1000,
        "save.every": 1000,
    }
    _, last = train(folder, *(word for key, value in values.items() for word in ("--set", f"{key}={value}")))
    return [Figure("tiny Shakespeare, characters: loss on the last 10 %", last["loss"], 1.70, "nats")]


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("what", choices=["start", "quickstart", "shakespeare"])
    parser.add_argument("text", nargs="?", type=Path, help="tiny Shakespeare")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    arguments = parser.parse_args()
    if (arguments.what == "shakespeare") != (arguments.text is not None):
        parser.error("a text goes with shakespeare, and only with it")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        if arguments.what == "start":
            figures = start(folder)
        elif arguments.what == "quickstart":
            figures = quickstart(folder)
        else:
            figures = shakespeare(folder, arguments.text)
    for figure in figures:
        verdict = "holds" if figure.holds else "MISSED"
        print(f"{figure.name:<55} {figure.value:8.3f} {figure.unit:<10} at most {figure.limit:.3f}  {verdict}")
    if arguments.json:
        record = {"machine": platform.platform(), "figures": [asdict(figure) for figure in figures]}
        arguments.json.write_text(json.dumps(record, indent=2) + "\n")
    sys.exit(not all(figure.holds for figure in figures))


if __name__ == "__main__":
    main()
