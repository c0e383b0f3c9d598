"""The program as a whole, killed without warning."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from gptlite.runs.checkpoint import valid_checkpoints
from gptlite.runs.run import Run

CONFIG = """\
data: {source: story.txt}
tokenizer: {kind: bpe, vocab_size: 300}
model: {n_layer: 2, n_head: 2, n_embd: 32, block_size: 32, dropout: 0.2}
train: {max_steps: 80, batch_size: 8, micro_batch_size: 4, warmup_steps: 5, optimizer: muon}
eval: {every: 20}
save: {every: 7}
log: {every: 1}
run: {threads: 1, precision: bf16}
"""


def gptlite(folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])}
    command = [sys.executable, "-m", "gptlite", "train", *arguments]
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def finish(process: subprocess.Popen[bytes]) -> None:
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors.decode()


def steps_logged(run: Path) -> int:
    path = run / "metrics.jsonl"
    return path.read_bytes().count(b'"train"') if path.exists() else 0


def kill_after(process: subprocess.Popen[bytes], run: Path, step: int) -> None:
    deadline = time.monotonic() + 120
    while steps_logged(run) < step and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.001)
    assert process.poll() is None, "it ended before it could be killed"
    process.send_signal(signal.SIGKILL)
    process.communicate()


def read(folder: Path) -> EventAccumulator:
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    return events


def scalars(folder: Path, tag: str) -> list[tuple[int, float]]:
    return [(event.step, event.value) for event in read(folder).Scalars(tag)]


@pytest.mark.slow
def test_a_run_killed_three_times_ends_bit_for_bit_as_one_left_alone(tmp_path):
    words = np.random.default_rng(0).choice(["the ", "cat ", "sat ", "mat. ", "naïve "], 6000)
    (tmp_path / "story.txt").write_text("".join(words))
    (tmp_path / "hard.yaml").write_text(CONFIG)
    finish(gptlite(tmp_path, "-c", "hard.yaml", "--name", "whole"))

    kills = sorted(random.Random(os.urandom(8)).sample(range(3, 76), 3))
    cut = tmp_path / "runs" / "cut"
    for step in kills:
        kill_after(gptlite(tmp_path, "-c", "hard.yaml", "--name", "cut", "--continue"), cut, step)
    finish(gptlite(tmp_path, "--resume", "cut"))

    ends = [
        valid_checkpoints(Run(tmp_path / "runs" / name).checkpoints, check_hashes=True)[-1] for name in ("whole", "cut")
    ]
    for name in ("model.safetensors", "optimizer.safetensors"):
        whole, resumed = (end.read_tensors(name) for end in ends)
        assert whole.keys() == resumed.keys()
        assert all(torch.equal(whole[key], resumed[key]) for key in whole), f"killed after {kills}"

    def numbers(name: str) -> list[dict[str, object]]:
        lines = (tmp_path / "runs" / name / "metrics.jsonl").read_text().splitlines()
        return [{key: value for key, value in json.loads(line).items() if key != "time"} for line in lines]

    assert numbers("whole") == numbers("cut"), f"killed after {kills}"
    assert [line["step"] for line in numbers("cut") if line["split"] == "train"] == list(range(1, 81))
    assert scalars(tmp_path / "runs" / "cut" / "tb", "train/loss") == scalars(
        tmp_path / "runs" / "whole" / "tb", "train/loss"
    )
    for folder in {path.parent for path in (tmp_path / "runs" / "cut" / "tb").rglob("events.*")}:
        for tag in read(folder).Tags()["scalars"]:
            steps = [step for step, _ in scalars(folder, tag)]
            assert steps == sorted(set(steps)), f"{folder}: {tag}, killed after {kills}"
    shutil.rmtree(tmp_path / "runs")


@pytest.mark.slow
@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_program_with_its_code_and_a_line_that_says_how_to_go_on(tmp_path, signum, code):
    (tmp_path / "story.txt").write_text("the cat sat on the mat. " * 400)
    (tmp_path / "hard.yaml").write_text(CONFIG.replace("max_steps: 80", "max_steps: 100000"))
    process = gptlite(tmp_path, "-c", "hard.yaml")
    run = tmp_path / "runs" / "hard"
    while steps_logged(run) < 3 and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signum)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == code
    what_happened, introduction, command = errors.decode().splitlines()[-3:]
    assert what_happened.startswith("run hard: stopped and saved after step ")
    assert what_happened.endswith(f"({signum.name})")
    assert introduction == "continue with:"
    assert command.endswith("gptlite train --resume hard")
    assert valid_checkpoints(Run(run).checkpoints)
