"""Two processes train as one does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gptlite.cli import app

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
# Several commands one after the other, since starting the processes takes longer than training. The first joins the
# group of torchrun as it does alone; the stores of the others have names of their own, since a store is used once.
PROGRAM = """
import functools, json, sys
import torch.distributed as dist
from gptlite.cli import app

join = dist.init_process_group
for i, arguments in enumerate(json.loads(sys.argv[1])):
    if i > 0:
        store, rank, world_size = next(dist.rendezvous("env://"))
        dist.init_process_group = functools.partial(
            join, store=dist.PrefixStore(str(i), store), rank=rank, world_size=world_size
        )
    assert app.run(arguments) == 0, arguments
"""


def in_two_processes(*commands: list[str]) -> None:
    """Run command lines under torchrun."""
    Path("program.py").write_text(PROGRAM)
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    done = subprocess.run(
        [sys.executable, *launcher, "program.py", json.dumps(commands)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def losses(name: str) -> dict[tuple[str, int], float]:
    """(split, step) -> loss"""
    lines = [json.loads(line) for line in Path("runs", name, "metrics.jsonl").read_text().splitlines()]
    return {(line["split"], line["step"]): line["loss"] for line in lines}


# In fp32 AdamW keeps the losses equal to rounding. Muon at its own rate amplifies rounding over tens of updates.
@pytest.mark.slow
def test_two_processes_take_the_same_batches_and_reach_the_same_losses_as_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = np.random.default_rng(0).choice(["the ", "cat ", "sat ", "on ", "mat. "], 2000)
    Path("story.txt").write_text("".join(words))
    Path("nano.yaml").write_text(CONFIG)
    muon, longer = "train.optimizer=muon", "train.max_steps=16"
    assert app.run(["train", "-c", "nano.yaml", "--name", "one"]) == 0
    assert app.run(["train", "-c", "nano.yaml", "--name", "muon-one", "--set", muon]) == 0
    before = losses("one")

    in_two_processes(
        ["train", "-c", "nano.yaml", "--name", "two"],
        ["train", "-c", "nano.yaml", "--name", "muon-two", "--set", muon],
        ["train", "--resume", "one", "--set", longer],
    )
    assert losses("two") == pytest.approx(before, rel=1e-5)
    assert losses("muon-two") == pytest.approx(losses("muon-one"), rel=1e-3)
    # A run of two goes on as one of one, and the other way round.
    assert app.run(["train", "--resume", "two", "--set", longer]) == 0
    assert max(step for _, step in losses("one")) == 16
    assert losses("one") == pytest.approx(losses("two"), rel=1e-5)
