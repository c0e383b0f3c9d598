"""The program as a whole, killed without warning and stopped by signals."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from training_runs import numbers

from gptlite.cli import app
from gptlite.runs.checkpoint import valid_checkpoints
from gptlite.runs.run import Run

STEPS = 100
CONFIG = f"""\
data: {{source: story.txt}}
tokenizer: {{kind: bpe, vocab_size: 300}}
model: {{n_layer: 2, n_head: 2, n_embd: 16, block_size: 16, dropout: 0.2}}
train: {{max_steps: {STEPS}, batch_size: 8, micro_batch_size: 4, warmup_steps: 5, optimizer: muon}}
eval: {{every: 25}}
save: {{every: 7}}
log: {{every: 1}}
run: {{threads: 1}}
"""
STOPS = (signal.SIGKILL, signal.SIGINT, signal.SIGKILL, signal.SIGTERM, signal.SIGKILL)

# Starts the program once for every line, as a process of its own, and says its id and its exit code. Importing torch
# takes seconds, so it is done once, before the fork.
FORKS = """
import json, os, sys
import gptlite.training.session
from gptlite.__main__ import main
for line in sys.stdin:
    if (child := os.fork()) == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.argv = ["gptlite", *json.loads(line)]
        main()
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def steps_logged(run: Path) -> int:
    path = run / "metrics.jsonl"
    return path.read_bytes().count(b'"train"') if path.exists() else 0


def stop_after(child: int, run: Path, step: int, signum: int) -> None:
    """Send a signal once so many steps are logged, some of them by this process."""
    step, deadline = max(step, steps_logged(run) + 1), time.monotonic() + 120
    while steps_logged(run) < step and time.monotonic() < deadline:
        time.sleep(0.001)
    os.kill(child, signum)


def read(folder: Path) -> EventAccumulator:
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    return events


def scalars(folder: Path, tag: str) -> list[tuple[int, float]]:
    return [(event.step, event.value) for event in read(folder).Scalars(tag)]


@pytest.mark.slow
def test_a_run_that_was_killed_and_stopped_by_signals_ends_bit_for_bit_as_one_left_alone(
    tmp_path, monkeypatch, repository
):
    words = np.random.default_rng(0).choice(["the ", "cat ", "sat ", "mat. ", "naïve "], 6000)
    (tmp_path / "story.txt").write_text("".join(words))
    (tmp_path / "hard.yaml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(repository))
    whole, cut = Path("runs/whole"), Path("runs/cut")
    assert app.run(["train", "-c", "hard.yaml", "--name", "whole"]) == 0

    stops = [18 * i + random.SystemRandom().randrange(2, 14) for i in range(len(STOPS))]
    command = ["train", "-c", "hard.yaml", "--name", "cut", "--continue"]
    pipe, errors = subprocess.PIPE, Path("errors")
    with (
        errors.open("w") as stderr,
        subprocess.Popen([sys.executable, "-c", FORKS], stdin=pipe, stdout=pipe, stderr=stderr, text=True) as forks,
    ):
        for step, signum in zip(stops, STOPS, strict=True):
            print(json.dumps(command), file=forks.stdin, flush=True)
            stop_after(int(forks.stdout.readline()), cut, step, signum)
            code = int(forks.stdout.readline())
            if signum == signal.SIGKILL:
                assert code == -signum, errors.read_text()
                continue
            assert code == 128 + signum, errors.read_text()
            saved = valid_checkpoints(Run(cut).checkpoints)[-1].step
            assert saved == steps_logged(cut)
            what_happened, introduction, to_continue = errors.read_text().splitlines()[-3:]
            assert what_happened == f"run cut: stopped and saved after step {saved} ({signum.name})"
            assert introduction == "continue with:"
            assert to_continue.endswith("gptlite train --resume cut")
    assert app.run(["train", "--resume", "cut"]) == 0

    ends = [valid_checkpoints(Run(run).checkpoints)[-1] for run in (whole, cut)]
    for name in ("model.safetensors", "optimizer.safetensors"):
        alone, resumed = (end.read_tensors(name) for end in ends)
        assert alone.keys() == resumed.keys()
        assert all(torch.equal(alone[key], resumed[key]) for key in alone), f"stopped after {stops}"

    logged = numbers(Run(cut))
    assert numbers(Run(whole)) == logged, f"stopped after {stops}"
    assert [line["step"] for line in logged if line["split"] == "train"] == list(range(1, STEPS + 1))
    assert scalars(cut / "tb", "train/loss") == scalars(whole / "tb", "train/loss")
    for folder in {path.parent for path in (cut / "tb").rglob("events.*")}:
        for tag in read(folder).Tags()["scalars"]:
            steps = [step for step, _ in scalars(folder, tag)]
            assert steps == sorted(set(steps)), f"{folder}: {tag}, stopped after {stops}"
