"""`scripts/bench busy`: training and sampling beside programs that keep a core busy, the whole program in turns.

Every training and every sampling is a process as a user starts it, alone, beside one and beside two endless loops; once
as gptlite lets OpenMP's threads wait, once as OpenMP does by itself. Of a training the time of its updates counts, so
that its start does not flatter the ratios; of sampling, the whole process.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.cli_latency import GPTLITE
from benchmarks.figures import Figure, Spread, table
from benchmarks.plan_accuracy import library
from benchmarks.worker import Worker
from gptlite.compute.limits import short_spin

OPENMP_DEFAULTS = {"GOMP_SPINCOUNT": "300000", "KMP_BLOCKTIME": "200"}  # of libgomp and libomp
HOW = {"short spin": {}, "default": OPENMP_DEFAULTS}  # by name: what the environment has

# By size: config, settings, updates of a training, tokens of a sample.
SIZES: dict[str, tuple[str, dict[str, object], int, int]] = {
    "tiny": ("tiny.yaml", {}, 300, 3000),
    "4x128": ("tiny.yaml", {"n_layer": 4, "n_head": 4, "n_embd": 128, "batch_size": 12}, 40, 1000),
    "small": ("small.yaml", {}, 25, 1500),
    "six": ("tiny.yaml", {"n_layer": 6, "n_head": 6, "n_embd": 384, "block_size": 256, "batch_size": 16}, 4, 300),
}
WITHIN = 0.1  # of the minutes asked for
MOST_BESIDE_ONE = 2.5  # times the time alone
MOST_ALONE = {"4x128": 1.10, "six": 1.03}  # times the time with OpenMP's own default


@contextmanager
def busy(n_loops: int) -> Iterator[None]:
    """So many programs that do nothing but compute."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(n_loops)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def settings_of(size: str) -> list[str]:
    """As options of `gptlite train`."""
    config, values, updates, _ = SIZES[size]
    keys = {key: f"{'train' if key == 'batch_size' else 'model'}.{key}" for key in values}
    every = {"train.max_steps": updates, "train.warmup_steps": 1, "log.every": 1, "log.tensorboard": "false"}
    every |= {"eval.every": 10**6, "save.every": 10**6, "data.val_max_bytes": 2000, "data.source": library()}
    given = {keys[key]: value for key, value in values.items()} | every
    return ["--config", config, *(word for key, value in given.items() for word in ("--set", f"{key}={value}"))]


def seconds_of_update(folder: Path, size: str, environment: dict[str, str]) -> float:
    """The mean of a training but for its first fifth, when kernels are chosen and the heap grows."""
    shutil.rmtree(folder / "runs" / size, ignore_errors=True)
    command = [*GPTLITE, "train", *settings_of(size), "--name", size, "--quiet"]
    subprocess.run(command, cwd=folder, env=os.environ | environment, check=True, capture_output=True)
    lines = [json.loads(line) for line in (folder / "runs" / size / "metrics.jsonl").read_text().splitlines()]
    elapsed: list[float] = [line["time"]["elapsed"] for line in lines if line["split"] == "train"]
    first = len(elapsed) // 5
    return (elapsed[-1] - elapsed[first]) / (len(elapsed) - 1 - first)


def seconds_of_sampling(folder: Path, size: str, environment: dict[str, str]) -> float:
    """Of the whole process."""
    command = [*GPTLITE, "sample", size, "--max-new-tokens", str(SIZES[size][3])]
    began_at = time.perf_counter()
    subprocess.run(command, cwd=folder, env=os.environ | environment, check=True, capture_output=True)
    return time.perf_counter() - began_at


WORK = {"training": seconds_of_update, "sampling": seconds_of_sampling}


def measure(folder: Path, sizes: Sequence[str], rounds: int) -> tuple[list[dict[str, Any]], list[Figure]]:
    """Rows of the table, printed at the end, and the figures that have limits."""
    for size in sizes:
        subprocess.run([*GPTLITE, "prepare", *settings_of(size)], cwd=folder, check=True, capture_output=True)
    seen: dict[tuple[str, str, int, str], list[float]] = {}
    for i in range(rounds):
        for size in sizes:
            for work, seconds in WORK.items():
                for loops in (0, 1, 2):
                    ways = list(HOW) if loops < 2 else list(HOW)[:1]
                    for way in ways if i % 2 == 0 else reversed(ways):
                        with busy(loops):
                            taken = seconds(folder, size, HOW[way])
                        seen.setdefault((size, work, loops, way), []).append(taken)
                        print(f"round {i + 1}: {size}, {work}, {loops} loops, {way}: {taken:.4g} s", flush=True)
    return rows_of(sizes, seen)


def deadlines(folder: Path) -> list[Figure]:
    """small.yaml for a minute, and what a dry run says, on an idle machine and beside a loop."""
    common = [f"run.dir={folder / 'runs'}", f"data.dir={folder / 'prepared'}"]
    minute = [*common, "train.max_minutes=1"]
    figures = []
    for loops in (0, 1):
        with busy(loops), Worker("plan_accuracy.training", short_spin(), sets=minute) as trainer:
            taken = Spread.of([trainer.turn() / 60])
        name = f"train.max_minutes=1 beside {loops} loops"
        figures.append(Figure(name, taken, "minutes", at_least=1 - WITHIN, at_most=1 + WITHIN))
    short = [*common, "train.max_steps=150", "eval.every=100"]
    with busy(1):
        with Worker("plan_accuracy.plan", short_spin(), sets=short) as planner:
            planned = planner.facts["seconds"]
        with Worker("plan_accuracy.training", short_spin(), sets=short) as trainer:
            ratio = Spread.of([planned / trainer.turn()])
    least, most = 1 / MOST_BESIDE_ONE, MOST_BESIDE_ONE
    return [*figures, Figure("--dry-run beside 1 loop", ratio, "of taken", at_least=least, at_most=most)]


def rows_of(
    sizes: Sequence[str], seen: dict[tuple[str, str, int, str], list[float]]
) -> tuple[list[dict[str, Any]], list[Figure]]:
    """Medians in ms, and ratios taken round by round."""
    head = [["", "alone", "default", "beside one", "default", "beside two"]]
    rows, figures = [], []
    for size in sizes:
        for work in WORK:
            columns = [(0, "short spin"), (0, "default"), (1, "short spin"), (1, "default"), (2, "short spin")]
            alone, alone_default, one, one_default, two = (seen[size, work, *column] for column in columns)
            medians = [Spread.of(each).median for each in (alone, alone_default, one, one_default, two)]
            head.append([f"{size}, {work}, ms", *(f"{1000 * each:.1f}" for each in medians)])
            rows.append({"size": size, "work": work, "seconds": [alone, alone_default, one, one_default, two]})
            name, most = f"{size}, {work}", MOST_ALONE.get(size) if work == "training" else None
            figures += [
                Figure(f"{name}: beside one loop", Spread.of_ratios(one, alone), "of alone", at_most=MOST_BESIDE_ONE),
                Figure(f"{name}: the same by default", Spread.of_ratios(one_default, alone_default), "of alone"),
                Figure(f"{name}: beside two loops", Spread.of_ratios(two, alone), "of alone"),
                Figure(f"{name}: alone", Spread.of_ratios(alone, alone_default), "of default", at_most=most),
            ]
    print("\n" + table(head))
    return rows, figures
