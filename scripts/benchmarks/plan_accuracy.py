"""`scripts/bench plan`: what `gptlite train --dry-run` says of short trainings, against what they take."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure, Spread, table
from benchmarks.worker import Contender, Worker
from gptlite.compute.limits import ALONE

FOLDERS = ("asyncio", "email", "http", "importlib", "multiprocessing", "unittest", "xml")  # of Python's library
WITHIN = 0.15  # of what is measured

GELU_IN_FOUR: dict[str, object] = {"model.activation": "gelu", "train.micro_batch_size": 8}
# What differs: tokenizer, layers, heads, width, block, batch, updates, and further keys.
SHAPES: dict[str, tuple[str | int, int, int, int, int, int, int, dict[str, object]]] = {
    "char 2x96": ("char", 2, 3, 96, 64, 16, 300, {}),
    "char 3x96, block 256, two passes": ("char", 3, 3, 96, 256, 32, 16, {}),
    "char 6x256": ("char", 6, 4, 256, 256, 8, 8, {}),
    "char 2x512, adamw": ("char", 2, 8, 512, 128, 4, 20, {"train.optimizer": "adamw"}),
    "bpe 512, block 512, batched": (512, 4, 4, 128, 512, 4, 24, {"run.attention": "batched"}),
    "bpe 1024, dropout": (1024, 4, 4, 128, 128, 16, 24, {"model.dropout": 0.1}),
    "bpe 1024, 8x256, adamw": (1024, 8, 4, 256, 128, 8, 16, {"train.optimizer": "adamw"}),
    "bpe 4096, small.yaml": (4096, 3, 3, 96, 64, 32, 60, {}),
    "bpe 4096, gelu, four passes": (4096, 3, 3, 96, 64, 32, 60, GELU_IN_FOUR),
    "bpe 8192, 4x192": (8192, 4, 4, 192, 256, 8, 10, {"model.tie_weights": False}),
}  # fmt: skip


def library() -> str:
    """Some of Python's library, as data.source: text that is on every machine."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    return f"[{', '.join(str(folder / name) for name in FOLDERS)}]"


def settings_of(name: str, scratch: Path) -> list[str]:
    """The training of that name, as after --set; nothing of it lies outside `scratch`."""
    tokenizer, n_layer, n_head, n_embd, block_size, batch_size, updates, others = SHAPES[name]
    values = {
        "run.dir": scratch / "runs",
        "run.device": "cpu",
        "data.dir": scratch / "prepared",
        "data.source": library(),
        "data.val_max_bytes": 30_000,
        "tokenizer.kind": "char" if tokenizer == "char" else "bpe",
        "tokenizer.vocab_size": "null" if tokenizer == "char" else tokenizer,
        "model.n_layer": n_layer,
        "model.n_head": n_head,
        "model.n_embd": n_embd,
        "model.block_size": block_size,
        "train.batch_size": batch_size,
        "train.max_steps": updates,
        "train.warmup_steps": 2,
        "eval.every": updates // 2,
        "save.every": updates // 2,
        **others,
    }
    return [f"{key}={value}" for key, value in values.items()]


def plan(sets: list[str]) -> Contender:
    """A contender whose facts are the plan, made in a process of its own; a turn of it does nothing."""
    from gptlite.config.loading import find_config, load_config
    from gptlite.loggers.metrics import Listener
    from gptlite.training.dry_run import time_run
    from gptlite.training.launch import Request, prepare_new

    cfg, prepared, _ = prepare_new(Request(load_config(find_config("small.yaml"), sets)), Listener())
    planned = time_run(cfg, prepared).to_json()
    return lambda times: 0.0, {"seconds": planned["seconds"]["total"], "peak": planned["memory"]["peak"]}


def training(sets: list[str]) -> Contender:
    """A turn is the whole training, as long as it says itself that it took."""
    from gptlite.cli.python import train

    return lambda times: train("small.yaml", sets, progress=False).state.elapsed, {}


def measure(scratch: Path, rounds: int) -> tuple[list[dict[str, Any]], list[Figure]]:
    """Rows of the table, printed at the end, and the figures that have limits."""
    names = list(SHAPES)
    for name in names:
        words = [word for each in settings_of(name, scratch) for word in ("--set", each)]
        subprocess.run([sys.executable, "-m", "gptlite", "prepare", *words], check=True, capture_output=True)
    seen: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for i in range(rounds):
        for name in names if i % 2 == 0 else reversed(names):
            sets = settings_of(name, scratch)
            with Worker("plan_accuracy.plan", ALONE, sets=sets) as planner:
                planned = planner.facts
            with Worker("plan_accuracy.training", ALONE, sets=sets) as trainer:
                taken = {"seconds": trainer.turn(), "peak": trainer.peak_memory}
            shutil.rmtree(scratch / "runs")
            seen[name].append({f"planned {key}": planned[key] for key in taken} | taken)
            ratios = ", ".join(f"{key} {planned[key] / taken[key]:.2f}" for key in taken)
            print(f"round {i + 1}, planned over taken: {name}: {ratios}", flush=True)
    return rows_of(seen)


def rows_of(seen: dict[str, list[dict[str, float]]]) -> tuple[list[dict[str, Any]], list[Figure]]:
    """Planned over taken, round by round, of every training."""
    cells, rows, figures = [["", "planned s", "took s", "planned MiB", "took MiB"]], [], []
    for name, rounds in seen.items():
        columns = {key: [each[key] for each in rounds] for key in rounds[0]}
        medians = {key: Spread.of(values).median for key, values in columns.items()}
        cells.append(
            [
                name,
                *(f"{medians[key]:.1f}" for key in ("planned seconds", "seconds")),
                *(f"{medians[key] / 2**20:.0f}" for key in ("planned peak", "peak")),
            ]
        )
        rows.append({"name": name, "settings": SHAPES[name], **columns})
        for key, what in (("seconds", "time"), ("peak", "memory")):
            ratio = Spread.of_ratios(columns[f"planned {key}"], columns[key])
            figures.append(Figure(f"{name}: {what}", ratio, "of taken", at_least=1 - WITHIN, at_most=1 + WITHIN))
    print("\n" + table(cells))
    return rows, figures
