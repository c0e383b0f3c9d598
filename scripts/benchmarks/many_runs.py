"""Folders of runs as training leaves them, without training: for `scripts/bench runs`."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta
from pathlib import Path

from gptlite.config.loading import dump_config
from gptlite.config.schema import RunConfig
from gptlite.storage.sealed import write_sealed

STEPS = 5000  # with a log line every ten and an evaluation every 250
STARTED_AT = datetime(2026, 1, 1, tzinfo=UTC)


def make(folder: Path, number: int) -> None:
    """So many runs: three seeds of each learning rate, every fifth stopped on the way."""
    for i in range(number):
        lr, seed = 0.001 * (1 + i // 3), 1 + i % 3
        values = {"train.lr": lr, "run.seed": seed, "train.max_steps": STEPS, "run.threads": 2}
        path = folder / f"sweep-{i + 1:03}"
        (path / "checkpoints").mkdir(parents=True)
        (path / ".lock").write_text("{}")
        (path / "config.yaml").write_text(dump_config(RunConfig().with_values(values)))
        started_at = (STARTED_AT + timedelta(minutes=i)).isoformat()
        write_sealed(path / "run.json", {"started_at": started_at, "parameters": 812_544, "data": "f" * 64})
        stopped = i % 5 == 4
        lines = list(_lines(STEPS * 3 // 5 if stopped else STEPS, lr))
        (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        if not stopped:
            best = lines[-1]["bits_per_byte"]
            write_sealed(path / "finished.json", {"step": STEPS, "best_step": STEPS, "best_bits_per_byte": best})


def _lines(last: int, lr: float) -> list[dict[str, object]]:
    lines: list[dict[str, object]] = []
    for step in range(10, last + 1, 10):
        loss = 3.0 + 3.0 * math.exp(-step / 800) + 10 * lr
        time = {"elapsed": 0.1234567 * step, "tokens_per_second": 16589.123456 + step}
        train = {"loss": loss, "lr": lr, "grad_norm": 0.8123456, "tokens": 2048 * step}
        lines.append({"step": step, "split": "train", **train, "time": time})
        if step % 250 == 0:
            val = {"loss": loss, "bits_per_byte": loss / 2.4, "perplexity": math.exp(loss)}
            lines.append({"step": step, "split": "val", **val, "time": {"elapsed": time["elapsed"]}})
    return lines
