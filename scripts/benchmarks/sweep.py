"""The sweep behind `train.lr: auto`: both optimizers at quarters to fourfolds of what it chooses, on two texts."""

from __future__ import annotations

import math
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure, Spread

FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
WIDTHS = {"narrow": (2, 64), "middle": (4, 128), "wide": (4, 192)}  # layers, n_embd
HEAD_SIZE = 32
PACKAGES = ("asyncio", "email", "http", "importlib", "json", "logging", "multiprocessing", "unittest", "urllib", "xml")
WORST = 0.02  # how much more than the best bits per byte found auto may end with


@dataclass(frozen=True)
class Case:
    """One size, optimizer and text; the learning rates are tried on it."""

    width: str
    optimizer: str
    text: str
    values: dict[str, Any]


def cases(shakespeare: Path, steps: int, scratch: Path) -> Iterator[Case]:
    """Characters of tiny Shakespeare, and BPE of Python's standard library."""
    library = Path(sysconfig.get_paths()["stdlib"])
    texts: dict[str, dict[str, Any]] = {
        "characters": {"data.source": str(shakespeare), "tokenizer.kind": "char"},
        "code, BPE 1024": {
            "data.source": [str(library / package / "**" / "*.py") for package in PACKAGES],
            "tokenizer.kind": "bpe",
            "tokenizer.vocab_size": 1024,
        },
    }
    for text, of_text in texts.items():
        for width, (n_layer, n_embd) in WIDTHS.items():
            shape = {"n_layer": n_layer, "n_head": n_embd // HEAD_SIZE, "n_embd": n_embd, "block_size": 64}
            for optimizer in ("adamw", "muon"):
                values: dict[str, Any] = {**of_text, **{f"model.{key}": value for key, value in shape.items()}}
                values |= {"train.optimizer": optimizer, "train.max_steps": steps, "data.dir": str(scratch / "data")}
                values |= {"eval.every": steps, "save.every": steps, "log.tensorboard": False}
                yield Case(width, optimizer, text, values)


def measure(shakespeare: Path, steps: int, scratch: Path) -> tuple[list[dict[str, Any]], list[Figure]]:
    """Train them all; a row for each run, a figure for each case."""
    from gptlite.config.schema import RunConfig
    from gptlite.errors import Diverged
    from gptlite.planning.choose_training import choose_lr
    from gptlite.training.launch import Request, open_session

    rows, figures = [], []
    for number, case in enumerate(cases(shakespeare, steps, scratch)):
        cfg = RunConfig().with_values(case.values)
        auto = choose_lr(cfg).value
        ended: dict[float, float] = {}
        for factor in FACTORS:
            lr = auto * factor
            try:
                tried = cfg.with_values({"train.lr": lr})
                with open_session(Request(tried, base=f"case-{number}", root=scratch / "runs")) as session:
                    outcome = session.train()
                best = outcome.state.best_bits_per_byte
            except Diverged:
                best = None
            ended[factor] = math.inf if best is None else best
            row = {"width": case.width, "optimizer": case.optimizer, "text": case.text, "lr": lr, "factor": factor}
            rows.append(row | {"bits_per_byte": ended[factor]})
            print(f"{case.text:15} {case.width:7} {case.optimizer:6} lr {lr:<8.3g} {ended[factor]:.4f}", flush=True)
        worse = ended[1.0] / min(ended.values())
        name = f"{case.text}, {case.width}, {case.optimizer}: auto over the best"
        figures.append(Figure(name, Spread(worse, worse, worse), "x", at_most=1 + WORST))
    return rows, figures
