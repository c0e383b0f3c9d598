"""`scripts/bench lessons`: configs/lesson-*.yaml on a text, each with several seeds: the table of docs/lessons.md."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.figures import table
from gptlite.cli.lesson import cells, find_lessons, read_figures


def train(path: Path, text: Path, seed: int, scratch: Path) -> dict[str, float]:
    """One lesson with one seed, evaluated at its end."""
    from gptlite.config.loading import load_config
    from gptlite.errors import Diverged
    from gptlite.runs.run import Run
    from gptlite.runs.summary import read_log
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
    return read_figures(cfg.model.n_layer, read_log(Run(scratch / "runs" / name)))


def measure(text: Path, seeds: int, names: Sequence[str], scratch: Path) -> list[dict[str, Any]]:
    """Train the named lessons, and print the table; a row for each run."""
    chosen = [path for path in find_lessons() if path.stem in names]
    trained: dict[str, list[dict[str, float]]] = {path.stem: [] for path in chosen}
    for seed in range(1, seeds + 1):
        for path in chosen:
            figures = train(path, text, seed, scratch)
            trained[path.stem].append(figures)
            took = f"loss {figures['loss']:.4f}  {figures['seconds']:.0f} s"
            print(f"{path.stem:25} seed {seed}  {took}", flush=True)
    rows = [cells(lesson, runs) for lesson, runs in trained.items()]
    print("\n" + table([list(rows[0]), *(list(row.values()) for row in rows)]))
    return [{"lesson": lesson, **figures} for lesson, runs in trained.items() for figures in runs]
