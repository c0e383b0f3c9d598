"""Two processes train as one does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

CONFIG = """\
data: {source: story.txt}
tokenizer: {kind: char}
model: {n_layer: 1, n_head: 2, n_embd: 16, block_size: 16}
train: {max_steps: 12, batch_size: 8, warmup_steps: 2, optimizer: adamw}
eval: {every: 6}
save: {every: 6}
log: {every: 1, tensorboard: false}
run: {threads: 1, precision: fp32, attention: fused}
"""


def train(folder: Path, name: str, processes: int, *more: str) -> list[dict[str, float]]:
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}", "-m", "gptlite"]
    command = [sys.executable, *(launcher if processes > 1 else ["-m", "gptlite"]), "train", *more]
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (folder / "runs" / name / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if "loss" in line]


# In fp32 AdamW keeps the losses equal to rounding. Muon at its own rate amplifies rounding over tens of updates.
@pytest.mark.slow
@pytest.mark.parametrize(("optimizer", "tolerance"), [("adamw", 1e-5), ("muon", 1e-3)])
def test_two_processes_take_the_same_batches_and_reach_the_same_losses_as_one(tmp_path, optimizer, tolerance):
    words = np.random.default_rng(0).choice(["the ", "cat ", "sat ", "on ", "mat. "], 2000)
    (tmp_path / "story.txt").write_text("".join(words))
    (tmp_path / "nano.yaml").write_text(CONFIG)
    given = ["-c", "nano.yaml", "--set", f"train.optimizer={optimizer}"]
    one = train(tmp_path, "one", 1, *given, "--name", "one")
    two = train(tmp_path, "two", 2, *given, "--name", "two")
    assert [line["step"] for line in one] == [line["step"] for line in two]
    assert [line["loss"] for line in two] == pytest.approx([line["loss"] for line in one], rel=tolerance)
    if optimizer == "muon":
        return
    # A run of two goes on as one of one, and the other way round.
    longer = ["--set", "train.max_steps=16"]
    one_then_two = train(tmp_path, "one", 2, "--resume", "one", *longer)
    two_then_one = train(tmp_path, "two", 1, "--resume", "two", *longer)
    assert one_then_two[-1]["step"] == 16
    assert [x["loss"] for x in one_then_two] == pytest.approx([x["loss"] for x in two_then_one], rel=tolerance)
