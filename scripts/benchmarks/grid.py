"""`scripts/bench grid`: what shapes reach on a text after so many updates. The rows are kept in grid.jsonl.

The score after a number of updates does not depend on the machine, the time of an update does. `train --minutes`
chooses from both (gptlite/planning/choose_sizes.py).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import yaml

ROWS = Path(__file__).with_name("grid.jsonl")
KEYS = {
    "layers": "model.n_layer",
    "width": "model.n_embd",
    "block": "model.block_size",
    "batch": "train.batch_size",
    "dropout": "model.dropout",
    "lr": "train.lr",
    "adamw_lr": "train.adamw_lr",
    "beta1": "train.beta1",
    "beta2": "train.beta2",
    "decay": "train.weight_decay",
    "warmup": "train.warmup_steps",
    "updates": "train.max_steps",
    "vocabulary": "tokenizer.vocab_size",
    "seed": "run.seed",
    "init": "model.init",
    "heads": "model.n_head",
    "activation": "model.activation",
    "sample": "train.vocab_sample",
    "momentum": "train.momentum",
}
HEAD_SIZE = 32
EVALUATIONS = 8


def point(text: str) -> dict[str, Any]:
    """The values of a point, such as layers=3,width=96,block=64,batch=16,vocabulary=4096,updates=2000."""
    found: dict[str, Any] = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        if name not in KEYS:
            raise argparse.ArgumentTypeError(f"{part}: of {', '.join(KEYS)}")
        found[name] = yaml.safe_load(value)
    if missing := {"layers", "width", "updates"} - set(found):
        raise argparse.ArgumentTypeError(f"{text}: {', '.join(sorted(missing))} is missing")
    return found


def measure(text: str, points: list[dict[str, Any]], scratch: Path) -> list[dict[str, Any]]:
    """Train each point on a text, BPE where it has a vocabulary and else characters; append its row to grid.jsonl."""
    from gptlite.config.schema import RunConfig
    from gptlite.runs.summary import read_curve, read_run
    from gptlite.training.launch import Request, open_session

    rows = []
    for number, values in enumerate(points):
        every = -(-values["updates"] // EVALUATIONS)
        cfg = RunConfig().with_values(
            {
                "model.n_head": max(1, values["width"] // HEAD_SIZE),
                **{KEYS[name]: value for name, value in values.items()},
                "tokenizer.kind": "bpe" if "vocabulary" in values else "char",
                "data.source": text,
                "data.dir": str(scratch / "data"),
                "eval.every": every,
                "save.every": values["updates"],
                "log.tensorboard": False,
            }
        )
        with open_session(Request(cfg, base=f"point-{number}", root=scratch / "runs")) as session:
            outcome = session.train()
        curve = read_curve(read_run(outcome.run)[0])
        n_bytes = sum(split.bytes for split in (outcome.prepared.manifest.train, outcome.prepared.manifest.val))
        scores = [[each.step, round(each.bits_per_byte, 4)] for each in curve]
        row = {"text": Path(text).name, "bytes": n_bytes, **values, "scores": scores}
        with ROWS.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)
        rows.append(row)
    return rows
