"""Training killed at every call to the disk while it begins, resumes and finishes, and at random times."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from training_runs import assert_same_end, start

from gptlite.runs.run import Run

# Each training is a fork of a process that has trained: importing torch takes seconds, and a first update half of what
# a whole training here takes.
KILLS = """
import json, os, random, shutil, signal, sys, time, traceback
from pathlib import Path
import gptlite.training.session
import training_runs as launch
from gptlite.storage import files
from gptlite.training import throughput
from gptlite.config.schema import RunConfig
from gptlite.training import trainer
from gptlite.training.trainer import Trainer

root, cfg = Path(sys.argv[1]), RunConfig.model_validate_json(sys.argv[2])
real_save, in_save = Trainer.save, False
trainer.SAMPLE_CHARACTERS = 6  # half of the time of a run this short
throughput.SECONDS = 0  # nothing here reads the speed of the machine
files._fsync = lambda fd: None  # the process dies, the system does not

def save(*args, **kwargs):
    global in_save
    in_save = True
    real_save(*args, **kwargs)
    in_save = False

Trainer.save = save

def train(name, config=cfg):
    launch.resume_or_start(config, root=root, name=name)

def in_child(work, *args):
    if (child := os.fork()) == 0:
        try:
            work(*args)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return child

def status(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def killed_at(at, half):  # saves and purges have a test of their own
    made = 0
    def syscall(call, *args):
        nonlocal made
        made += not in_save
        if made == at and not in_save:
            if half and call is os.write:
                os.write(args[0], args[1][: len(args[1]) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*args)
    files.syscall = syscall

def killed(name, at, half):
    killed_at(at, half)
    train(name)

def every_call(prefix, begun):
    at, codes = 0, [-signal.SIGKILL]
    while codes[-1] == -signal.SIGKILL:
        at += 1
        name = f"{prefix}-{at}"
        if begun:
            shutil.copytree(root / "begun", root / name)
        codes.append(status(in_child(killed, name, at, at % 2)))
        assert codes[-1] in (0, -signal.SIGKILL)
        assert codes[-1] == 0 or status(in_child(train, name)) == 0, name
    return at - 1

train("begun", cfg.with_values({"train.max_steps": 2}))
counts = {"start": every_call("start", begun=False), "resume": every_call("resume", begun=True)}
n_random = n_ends = 0
while n_random < 30:
    child = in_child(train, "random")
    time.sleep(random.uniform(0, 0.2))
    os.kill(child, signal.SIGKILL)
    if status(child) == 0:
        assert status(in_child(train, "random")) == 0
        n_ends += 1
        os.rename(root / "random", root / f"random-{n_ends}")
    else:
        n_random += 1
assert status(in_child(train, "random")) == 0
print(json.dumps(counts))
"""


@pytest.mark.slow
def test_training_killed_at_any_call_or_time_ends_bit_for_bit_as_one_left_alone(
    tiny, tmp_path, repository, monkeypatch
):
    tiny = tiny.with_values({"train.max_steps": 4, "eval.every": 2, "save.every": 2})
    monkeypatch.setattr("gptlite.training.trainer.SAMPLE_CHARACTERS", 6)
    whole = start(tiny, tmp_path, "whole")
    monkeypatch.setenv("PYTHONPATH", f"{repository}:{repository / 'tests'}")
    command = [sys.executable, "-c", KILLS, str(tmp_path / "killed"), tiny.model_dump_json()]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    counts = json.loads(done.stdout)
    assert min(counts.values()) > 20
    ends = [Run(path) for path in (tmp_path / "killed").iterdir() if path.is_dir() and path.name != "begun"]
    assert len(ends) > sum(counts.values())
    for run in ends:
        assert_same_end(whole, run)
