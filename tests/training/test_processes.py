"""How the processes of a run start, stop and die."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from distributed_runs import environment, free_port, losses, torchrun, write_texts

from gptlite.cli import app
from gptlite.compute import distributed


@pytest.fixture(autouse=True)
def _text(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_texts()


@pytest.mark.slow
def test_tasks_of_slurm_share_a_run_and_the_death_of_one_is_one_line_of_the_others():
    job = {
        "SLURM_STEP_NUM_TASKS": "2",
        "SLURM_STEP_TASKS_PER_NODE": "2",
        "SLURM_STEP_NODELIST": "localhost",
        "SLURM_NODEID": "0",
        "SLURM_JOB_ID": str(free_port()),
        "SLURM_STEP_ID": "0",
    }
    first, second = (
        command_line("--name", "n", *ENDLESS, **job, SLURM_PROCID=task, SLURM_LOCALID=task) for task in "01"
    )
    wait_for_updates(first)
    second.kill()
    _, said = first.communicate(timeout=60)
    second.communicate()
    assert first.returncode == 4
    assert json.loads(Path("runs/n/run.json").read_text())["world_size"] == 2
    assert said.splitlines()[-1].startswith("error: process 0 of 2: another process of this run has ended")
    assert "Traceback" not in said


def test_a_taken_port_and_a_process_that_never_comes_are_one_line(monkeypatch, capfd):
    def said_alone(rank: int, port: int) -> list[str]:
        """What one process of two says until it gives up."""
        variables = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        assert app.run(["train", "-c", "nano.yaml", "--name", "n"]) == 4
        return capfd.readouterr().err.splitlines()

    monkeypatch.setattr(distributed, "SILENCE", 0.0)
    monkeypatch.setattr(distributed, "PATIENCE", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        taken = "the processes cannot meet there: another program uses this port. Set another MASTER_PORT."
        assert said_alone(0, port) == [f"error: 127.0.0.1:{port}: {taken}"]
    for rank, missing in (
        (1, f"process 0 at 127.0.0.1:{port} (MASTER_ADDR and MASTER_PORT)"),
        (0, "process 1 of 2 (RANK)"),
    ):
        waiting, error = said_alone(rank, port)
        assert waiting == f"waiting for {missing}"
        assert error.startswith(f"error: WORLD_SIZE: {missing} did not come this far within ")


ENDLESS = ["--set", "train.max_steps=1000000"]


def command_line(*arguments: str, **variables: str) -> subprocess.Popen[str]:
    """`gptlite train` as a user starts it."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "gptlite", "train", "-c", "nano.yaml", *arguments],
        env=environment(**variables),
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )


@pytest.mark.slow
def test_nproc_starts_the_processes_of_a_run_once_nothing_can_be_refused(capfd):
    assert app.run(["train", "-c", "nano.yaml", "--nproc", "3"]) == 2
    assert capfd.readouterr().err.count("error: ") == 1
    assert not Path("runs").exists()

    trained = command_line("--nproc", "2", "--name", "n")
    _, said = trained.communicate(timeout=60)
    assert trained.returncode == 0, said
    assert json.loads(Path("runs/n/run.json").read_text())["world_size"] == 2


@pytest.mark.slow
@pytest.mark.parametrize(("signum", "to"), [(signal.SIGINT, "nproc"), (signal.SIGTERM, "one process")])
def test_a_signal_stops_all_processes_with_one_checkpoint(signum, to):
    endless = start_endless()
    os.kill(endless.pid if to == "nproc" else last_child(endless), signum)
    _, said = endless.communicate(timeout=60)
    assert endless.returncode == 128 + signum
    assert said.count("continue with:") == said.count("train --resume n --nproc 2") == said.count("plan: ") == 1
    assert not re.search(r"Warning|death signal|interrupted$", said)
    step = int(max(Path("runs/n/checkpoints").glob("step-*")).name.removeprefix("step-"))
    assert f"stopped and saved after step {step} ({signum.name})" in said
    assert "Traceback" not in said


@pytest.mark.slow
def test_a_process_of_nproc_that_is_killed_ends_the_others():
    endless = start_endless()
    os.kill(last_child(endless), signal.SIGKILL)
    _, said = endless.communicate(timeout=60)
    assert endless.returncode in (4, 137)  # of the first that ended, or that was seen to end
    assert "another process of this run has ended" in said or "was ended by SIGKILL" in said
    assert "Traceback" not in said


def wait_for_updates(process: subprocess.Popen[str]) -> None:
    """Wait until all processes of its run are training."""
    while not any(Path("runs").glob("n/checkpoints/step-*6")):
        assert process.poll() is None
        time.sleep(0.05)


def last_child(process: subprocess.Popen[str]) -> int:
    """The number of the process that it started last, one of the run."""
    return int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[-1])


def start_endless() -> subprocess.Popen[str]:
    """Two processes that have made their first updates."""
    endless = command_line("--nproc", "2", "--name", "n", *ENDLESS)
    wait_for_updates(endless)
    return endless


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
sets = ["--set", "train.max_steps=30", "--set", "train.batch_size=9"]
train = ["train", "-c", "nano.yaml", *sets, "--continue", "--name"]
sys.exit(app.run([*train, "r"]) or app.run([*train, "whole"]))
"""
# The order in which three numbers are added decides their sum; of two there is one order.
N_RESTARTED = 3


@pytest.mark.slow
def test_torchrun_starts_processes_again_and_they_go_on_from_the_last_checkpoint():
    torchrun(RESTARTED, n=N_RESTARTED, how=("--standalone", "--max-restarts=1"))
    assert Path("died").exists()
    assert json.loads(Path("runs/r/finished.json").read_text())["step"] == 30
    # Nothing shows that a process died.
    assert losses("r") == losses("whole")
