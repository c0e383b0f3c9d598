"""Runs that several processes share, as torchrun starts them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

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
# Several commands one after the other, since starting the processes takes longer than training. Each has the arguments
# of all processes, those that only the last process gets, and an exit code: 143 where SIGTERM comes in update 6.
PROGRAM = """
import itertools, json, os, sys
from gptlite.cli import app
from gptlite.training.signals import STOP, Signals

last = int(os.environ["RANK"]) == int(os.environ["WORLD_SIZE"]) - 1
usual = Signals.take_request
for arguments, of_last, code in json.loads(sys.argv[1]):
    count = itertools.count(1)
    stopping = lambda self: STOP + 15 if next(count) == 6 else usual(self)
    Signals.take_request = stopping if code == 143 else usual
    print("$", *arguments, file=sys.stderr, flush=True)
    assert app.run([*arguments, *(of_last if last else [])]) == code, (arguments, of_last)
"""


def environment(**variables: str) -> dict[str, str]:
    tests = Path(__file__).resolve().parent
    paths = {"PYTHONPATH": f"{tests.parent}:{tests}:{tests / 'training'}"}
    return {**os.environ, **paths, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", **variables}


def in_processes(
    commands: list[tuple[list[str], list[str], int]], n: int = 2, how: Sequence[str] = ("--standalone",)
) -> str:
    """Run command lines under torchrun, and return what they printed as errors."""
    return torchrun(PROGRAM, json.dumps(commands), n=n, how=how).stderr


def torchrun(
    program: str, *arguments: str, n: int = 2, how: Sequence[str] = ("--standalone",)
) -> subprocess.CompletedProcess[str]:
    Path("program.py").write_text(program)
    launcher = ["-m", "torch.distributed.run", *how, f"--nproc-per-node={n}", "program.py", *arguments]
    done = subprocess.run(
        [sys.executable, *launcher], env=environment(), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def losses(name: str) -> dict[tuple[str, int], float]:
    """(split, step) -> loss"""
    lines = [json.loads(line) for line in Path("runs", name, "metrics.jsonl").read_text().splitlines()]
    return {(line["split"], line["step"]): line["loss"] for line in lines}


def write_texts() -> None:
    """Write two texts and a config for them."""
    for seed, name in enumerate(("story.txt", "other.txt")):
        words = np.random.default_rng(seed).choice(["the ", "cat ", "sat ", "on ", "mat. "], 2000)
        Path(name).write_text("".join(words))
    Path("nano.yaml").write_text(CONFIG)
