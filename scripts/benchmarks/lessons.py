"""`scripts/bench lessons`: configs/lesson-*.yaml on a text, each with several seeds: the table of docs/lessons.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.figures import table
from gptlite.course.lessons import HEAD, Row, cells, find_lessons


def train(path: Path, text: Path, seed: int, scratch: Path) -> Row:
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
    return Row.of(path.stem, cfg.model.n_layer, read_log(Run(scratch / "runs" / name)))


def measure(text: Path, seeds: int, names: Sequence[str], scratch: Path) -> list[dict[str, Any]]:
    """Train the named lessons, and print the table; a row for each run."""
    rows: list[Row] = []
    chosen = [path for path in find_lessons() if path.stem in names]
    for seed in range(1, seeds + 1):
        for path in chosen:
            rows.append(train(path, text, seed, scratch))
            print(f"{path.stem:25} seed {seed}  loss {rows[-1].loss:.4f}  {rows[-1].seconds:.0f} s", flush=True)
    by_lesson = [[row for row in rows if row.lesson == path.stem] for path in chosen]
    print("\n" + table([HEAD, *map(cells, by_lesson)]))
    return [asdict(row) for row in rows]
