"""Two processes train as one does."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
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
# Several commands one after the other, since starting the processes takes longer than training. Each has the arguments
# of all processes, those that only the last process gets, and an exit code.
PROGRAM = """
import json, os, sys
from gptlite.cli import app

last = int(os.environ["RANK"]) == int(os.environ["WORLD_SIZE"]) - 1
for arguments, of_last, code in json.loads(sys.argv[1]):
    print("$", *arguments, file=sys.stderr, flush=True)
    assert app.run([*arguments, *(of_last if last else [])]) == code, (arguments, of_last)
"""


def environment(**variables: str) -> dict[str, str]:
    paths = {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    return {**os.environ, **paths, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", **variables}


def in_processes(
    commands: list[tuple[list[str], list[str], int]], n: int = 2, how: Sequence[str] = ("--standalone",)
) -> str:
    """Run command lines under torchrun, and return what they printed as errors."""
    Path("program.py").write_text(PROGRAM)
    launcher = ["-m", "torch.distributed.run", *how, f"--nproc-per-node={n}", "program.py", json.dumps(commands)]
    done = subprocess.run(
        [sys.executable, *launcher], env=environment(), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def losses(name: str) -> dict[tuple[str, int], float]:
    """(split, step) -> loss"""
    lines = [json.loads(line) for line in Path("runs", name, "metrics.jsonl").read_text().splitlines()]
    return {(line["split"], line["step"]): line["loss"] for line in lines}


@pytest.fixture(autouse=True)
def _text(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for seed, name in enumerate(("story.txt", "other.txt")):
        words = np.random.default_rng(seed).choice(["the ", "cat ", "sat ", "on ", "mat. "], 2000)
        Path(name).write_text("".join(words))
    Path("nano.yaml").write_text(CONFIG)


# In fp32 AdamW keeps the losses equal to rounding. Muon at its own rate amplifies rounding over tens of updates.
@pytest.mark.slow
def test_two_processes_take_the_same_batches_and_reach_the_same_losses_as_one():
    muon, longer = "train.optimizer=muon", "train.max_steps=16"
    assert app.run(["train", "-c", "nano.yaml", "--name", "one"]) == 0
    assert app.run(["train", "-c", "nano.yaml", "--name", "muon-one", "--set", muon]) == 0
    before = losses("one")

    said = in_processes(
        [
            (["train", "-c", "nano.yaml", "--name", "two"], [], 0),
            (["train", "-c", "nano.yaml", "--name", "muon-two", "--set", muon], [], 0),
            (["train", "--resume", "one", "--set", longer], [], 0),
        ]
    )
    assert "warning: resumed with processes 2 (before: 1), so the end will not be bit for bit" in said
    assert losses("two") == pytest.approx(before, rel=1e-5)
    assert losses("muon-two") == pytest.approx(losses("muon-one"), rel=1e-3)
    # A run of two goes on as one of one, and the other way round.
    assert app.run(["train", "--resume", "two", "--set", longer]) == 0
    assert max(step for _, step in losses("one")) == 16
    assert losses("one") == pytest.approx(losses("two"), rel=1e-5)


# What the last process is given, and what both sides are said to have.
DIFFERENCES = {
    "train.lr=0.5": "train.lr is auto in process 0 and 0.5 in process {last}",
    "run.seed=5": "run.seed is 1337 in process 0 and 5 in process {last}",
    "run.precision=bf16": "run.precision is fp32 in process 0 and bf16 in process {last}",
    "train.max_steps=20": "train.max_steps is 12 in process 0 and 20 in process {last}",
    "model.n_layer=2": "model.n_layer is 1 in process 0 and 2 in process {last}",
    "data.source=other.txt": "text is ",
}


@pytest.mark.slow
@pytest.mark.parametrize(("n", "rendezvous"), [(2, "c10d"), (4, "static")])
def test_processes_that_were_started_differently_are_refused_and_write_nothing(n, rendezvous):
    start = ["train", "-c", "nano.yaml", "--name", "n"]
    static = ("--master-addr=127.0.0.1", f"--master-port={free_port()}")
    how = ("--standalone",) if rendezvous == "c10d" else static
    said = in_processes([(start, ["--set", value], 2) for value in DIFFERENCES], n, how)
    for sentence in DIFFERENCES.values():
        assert said.count(f"error: WORLD_SIZE {n}: {sentence.format(last=n - 1)}") == n, said
    assert not Path("runs").exists()
    assert not Path("data").exists()
    assert "Traceback" not in said


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}


@pytest.mark.slow
def test_a_resume_is_refused_where_processes_differ():
    assert app.run(["train", "-c", "nano.yaml", "--name", "n"]) == 0
    before = contents(Path("runs/n"))
    resume = ["train", "--resume", "n", "--set"]
    commands = [([*resume, "train.max_steps=16"], ["--set", "log.every=2"], 2)]
    assert "log.every is 1 in process 0 and 2 in process 1" in in_processes(commands)
    assert contents(Path("runs/n")) == before


@pytest.mark.slow
def test_the_main_process_times_the_machine_for_all():
    commands = [(["train", "--minutes", "0.05", "--data", "story.txt", "--name", "timed", "--verbose"], [], 0)]
    said = in_processes(commands)
    assert re.search(r"speed: about \d+ GFLOP/s \(measured \d+ GFLOP/s\)", said), said
    assert json.loads(Path("runs/timed/run.json").read_text())["world_size"] == 2


# Whoever does not leave the group may be aborted at Python's exit.
ONE = """
import sys
import torch.distributed
from gptlite.cli import app

code = app.run(sys.argv[1:])
assert not torch.distributed.is_initialized()
sys.exit(code)
"""


def alone(rank: int, port: int, *arguments: str, **more: str) -> subprocess.Popen[str]:
    """One process of two, without torchrun."""
    variables = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), **more}
    command = [sys.executable, "-c", ONE, "train", "-c", "nano.yaml", "--name", "n", *arguments]
    return subprocess.Popen(
        command, env=environment(**variables), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.mark.slow
def test_the_death_of_a_process_is_one_line_of_the_others():
    port = free_port()
    first, second = (alone(rank, port, "--set", "train.max_steps=1000000") for rank in (0, 1))
    while not any(Path("runs").glob("n/checkpoints/step-*6")):  # both are training
        assert first.poll() is None
        time.sleep(0.05)
    second.kill()
    _, said = first.communicate(timeout=60)
    second.communicate()
    assert first.returncode == 4
    assert said.splitlines()[-1].startswith("error: process 0 of 2: another process of this run has ended")
    assert "Traceback" not in said


@pytest.mark.slow
def test_a_taken_port_and_a_process_that_never_comes_are_one_line():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        process = alone(0, port)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 4
    taken = "the processes cannot meet there: another program uses this port. Set another MASTER_PORT."
    assert said == f"error: 127.0.0.1:{port}: {taken}\n"
    for rank, missing in (
        (0, "process 1 of 2 (RANK)"),
        (1, f"process 0 at 127.0.0.1:{port} (MASTER_ADDR and MASTER_PORT)"),
    ):
        process = alone(rank, port)
        assert process.stderr is not None
        assert process.stderr.readline() == f"waiting for {missing}\n"
        process.kill()
        process.communicate()


def test_slurm_tasks_that_know_nothing_of_each_other_are_told_so(monkeypatch, capsys):
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "4")
    monkeypatch.setenv("SLURM_PROCID", "2")
    assert app.run(["train", "-c", "nano.yaml", "--set", "train.max_steps=1"]) == 0
    assert "warning: Slurm started 4 tasks, and each trains a run of its own." in capsys.readouterr().err


RESTARTED = """
import os, signal, sys, threading, time
from pathlib import Path
from gptlite.cli import app

def die() -> None:
    while not any(Path("runs").glob("r/checkpoints/step-*6")):
        time.sleep(0.02)
    os.kill(os.getpid(), signal.SIGKILL)

if os.environ["RANK"] == "1" and not Path("died").exists():
    Path("died").touch()
    threading.Thread(target=die, daemon=True).start()
sys.exit(app.run(["train", "-c", "nano.yaml", "--name", "r", "--continue", "--set", "train.max_steps=300"]))
"""


@pytest.mark.slow
def test_torchrun_starts_processes_again_and_they_go_on_from_the_last_checkpoint():
    Path("program.py").write_text(RESTARTED)
    launcher = ["-m", "torch.distributed.run", "--standalone", "--max-restarts=1", "--nproc-per-node=2", "program.py"]
    done = subprocess.run(
        [sys.executable, *launcher], env=environment(), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert Path("died").exists()
    assert json.loads(Path("runs/r/finished.json").read_text())["step"] == 300
