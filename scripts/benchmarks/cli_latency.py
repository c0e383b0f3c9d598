"""`scripts/bench start`, `runs`, `quickstart` and `shakespeare`: the program as a user runs it, in a scratch folder."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks import many_runs
from benchmarks.figures import Figure, Spread

GPTLITE = [sys.executable, "-m", "gptlite"]
ROUNDS = 7
N_RUNS = 500
POLL_SECONDS = 0.002


def seconds(command: list[str], *, expect: int, cwd: Path) -> float:
    """Wall time of a whole process."""
    began_at = time.perf_counter()
    done = subprocess.run(command, cwd=cwd, capture_output=True, check=False)
    elapsed = time.perf_counter() - began_at
    assert done.returncode == expect, done.stderr.decode()
    return elapsed


def to_first_update(folder: Path, name: str) -> dict[str, float]:
    """Seconds from the start of `gptlite train` until its files are open, and until it has made an update.

    metrics.jsonl shows them from outside: each of its lines is with the system when the call that logs it returns.
    """
    metrics = folder / "runs" / name / "metrics.jsonl"
    marks = {"open": b"", "updated": b'"split": "train"'}
    seen: dict[str, float] = {}
    command = [*GPTLITE, "train", "--name", name, "--set", "log.every=1"]
    began_at = time.perf_counter()
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    while "updated" not in seen:
        ended = process.poll() is not None
        text = metrics.read_bytes() if metrics.exists() else None
        now = time.perf_counter() - began_at
        seen = {mark: now for mark, words in marks.items() if text is not None and words in text} | seen
        assert "updated" in seen or not ended, process.communicate()[1].decode()
        time.sleep(POLL_SECONDS)
    process.kill()
    process.communicate()
    return seen


def start(folder: Path) -> list[Figure]:
    """How fast the program answers, and comes to its first update beyond what torch takes to load."""
    subprocess.run([*GPTLITE, "prepare"], cwd=folder, check=True, capture_output=True)
    samples: dict[str, list[float]] = {}
    for i in range(ROUNDS + 1):
        torch = seconds([sys.executable, "-c", "import torch"], expect=0, cwd=folder)
        times = {
            "help": seconds([*GPTLITE, "--help"], expect=0, cwd=folder),
            "wrong": seconds([*GPTLITE, "train", "--set", "train.lr=fast"], expect=2, cwd=folder),
            "torch": torch,
            **{mark: at - torch for mark, at in to_first_update(folder, f"bench-{i}").items()},
        }
        if i > 0:  # the first warms the disk's cache
            for name, value in times.items():
                samples.setdefault(name, []).append(value)
    found = {name: Spread.of(values) for name, values in samples.items()}
    return [
        Figure("gptlite --help", found["help"], "s", at_most=0.3),
        Figure("a config error", found["wrong"], "s", at_most=1.0),
        Figure("python -c 'import torch'", found["torch"], "s"),
        Figure("gptlite train, beyond that: its files are open", found["open"], "s"),
        Figure("gptlite train, beyond that: the first update", found["updated"], "s", at_most=1.5),
    ]


def runs(folder: Path) -> list[Figure]:
    """`gptlite runs` over many runs, 55 MB of them."""
    many_runs.make(folder / "runs", N_RUNS)
    times = [seconds([*GPTLITE, "runs"], expect=0, cwd=folder) for _ in range(ROUNDS + 1)]
    return [Figure(f"gptlite runs, {N_RUNS} of them", Spread.of(times[1:]), "s", at_most=1.0)]


def train(folder: Path, *arguments: str) -> tuple[float, dict[str, Any]]:
    """Wall time of `gptlite train`, and its last evaluation."""
    began_at = time.perf_counter()
    subprocess.run([*GPTLITE, "train", "--name", "bench", *arguments], cwd=folder, check=True)
    elapsed = time.perf_counter() - began_at
    lines = [json.loads(line) for line in (folder / "runs/bench/metrics.jsonl").read_text().splitlines()]
    return elapsed, [line for line in lines if line["split"] == "val"][-1]


def quickstart(folder: Path) -> list[Figure]:
    """The training of scripts/quickstart, the preparing of the text left out."""
    prepared = subprocess.run([*GPTLITE, "prepare"], cwd=folder, check=True, capture_output=True, text=True)
    manifest = json.loads((folder / prepared.stdout.split()[-1] / "MANIFEST.json").read_text())
    elapsed, last = train(folder)
    score, xz = Spread.of([last["bits_per_byte"]]), manifest["baselines"]["xz"]
    return [
        Figure("quickstart: gptlite train", Spread.of([elapsed / 60]), "minutes", at_most=3.0),
        Figure("quickstart: validation, against xz -9", score, "bits/byte", at_most=xz),
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
    loss = Spread.of([last["loss"]])
    return [Figure("tiny Shakespeare, characters: loss on the last 10 %", loss, "nats", at_most=1.70)]
