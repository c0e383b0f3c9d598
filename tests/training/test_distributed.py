"""Several processes train as one does."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from distributed_runs import free_port, in_processes, losses, torchrun, write_texts

from gptlite.cli import app


@pytest.fixture(autouse=True)
def _text(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_texts()


# In fp32 AdamW keeps the losses equal to rounding. Muon at its own rate amplifies rounding over tens of updates.
@pytest.mark.slow
def test_two_processes_take_the_same_batches_and_reach_the_same_losses_as_one(capsys):
    muon, longer, parts = "train.optimizer=muon", "train.max_steps=16", "run.parallel=fsdp"
    assert app.run(["train", "-c", "nano.yaml", "--name", "one"]) == 0
    assert app.run(["train", "-c", "nano.yaml", "--name", "muon-one", "--set", muon]) == 0
    before = losses("one")

    said = in_processes(
        [
            (["train", "-c", "nano.yaml", "--name", "two"], [], 0),
            (["train", "-c", "nano.yaml", "--name", "muon-two", "--set", muon, "--set", parts], [], 0),
            (["train", "--resume", "one", "--set", longer, "--set", parts], [], 0),
            (["train", "-c", "nano.yaml", "--name", "stopped", "--set", parts], [], 143),
            (["train", "--resume", "stopped"], [], 0),  # begins with the evaluation that was due
        ]
    )
    changed = "processes 2 (before: 1), run.parallel fsdp (before: ddp)"
    assert f"warning: resumed with {changed}, so the end will not be bit for bit" in said
    assert losses("two") == pytest.approx(before, rel=1e-5)
    assert losses("stopped") == pytest.approx(before, rel=1e-5)
    assert losses("muon-two") == pytest.approx(losses("muon-one"), rel=1e-3)
    # A run of two goes on as one of one, and the other way round.
    assert app.run(["train", "--resume", "two", "--set", longer]) == 0
    assert max(step for _, step in losses("one")) == 16
    assert losses("one") == pytest.approx(losses("two"), rel=1e-5)
    for name in ("muon-one", "muon-two"):
        assert app.run(["train", "--resume", name, "--set", longer]) == 0
    assert losses("muon-two") == pytest.approx(losses("muon-one"), rel=1e-3)
    assert capsys.readouterr().err.count("warning: run.parallel is fsdp, but one process divides nothing") == 1


# Of one row each, of all rows at once, with a head of its own: 50 losses by case.
LOSSES = """
import copy, json, sys, torch
from gptlite.compute.distributed import own_part
from gptlite.compute.processes import leave_group, rank, world_size
from gptlite.model.gpt2_layout import from_gpt2
from gptlite.training.checkpointing import checkpoint_tensors, first_non_finite
from gptlite.training.optim.build import load_named_state
from gptlite.training.sharing import gathered
from gptlite.training.step import sharing_gradients, train_step
from test_step import BY_OPTIMIZER, config, trainer_for

for optimizer, dtype, values, resumes in json.loads(sys.argv[1]):
    cfg, dtype = config(**BY_OPTIMIZER[optimizer], **values), getattr(torch, dtype)
    with sharing_gradients(trainer_for(cfg, dtype), 0) as trainer:
        found = [train_step(trainer, step).loss for step in range(50 - resumes)]
        if resumes:
            saved = copy.deepcopy(checkpoint_tensors(trainer.model, trainer.optimizers))
            with gathered(trainer.objective), torch.no_grad():
                if rank() == 0:
                    trainer.model(torch.zeros(1, 4, dtype=torch.int64))  # alone, as when attention is measured
            found += [train_step(trainer, step).loss for step in range(50 - resumes, 50)]
            name, parameter = list(trainer.model.named_parameters())[-1]
            if rank() == world_size() - 1:
                own_part(parameter.data)[-1] = float("nan")
            assert first_non_finite(trainer.model, trainer.optimizers) == name
    if resumes:
        resumed = trainer_for(cfg, dtype)
        from_gpt2(saved["model.safetensors"], resumed.model)
        load_named_state(resumed.model, resumed.optimizers, saved["optimizer.safetensors"])
        with sharing_gradients(resumed, 50 - resumes) as resumed:
            rest = [train_step(resumed, step).loss for step in range(50 - resumes, 50)]
        assert rest == found[-resumes:], "not resumed bit for bit"
    if rank() == 0:
        print(json.dumps(found))
leave_group()
"""
CASES = [
    ("adamw", "float64", {"train.micro_batch_size": 1}, 1e-12),
    ("adamw", "float32", {"train.micro_batch_size": 2, "model.tie_weights": False, "train.ngram_teacher": 0.5}, 2e-4),
    ("adamw", "float64", {"train.micro_batch_size": 2, "train.scheduled_sampling": 0.5}, 1e-12),
    ("adamw", "float64", {"train.micro_batch_size": 2, "train.freeze": ["embeddings"], "model.bias": True}, 1e-12),
    ("muon", "float32", {"train.micro_batch_size": 2}, 3e-3),
]


@pytest.mark.slow
def test_gradients_of_several_processes_are_those_of_one():
    def by_case(n: int, parallel: str = "ddp", resumes: int = 0) -> list[list[float]]:
        cases = [(*case[:2], {**case[2], "run.parallel": parallel}, resumes) for case in CASES]
        return [json.loads(line) for line in torchrun(LOSSES, json.dumps(cases), n=n).stdout.splitlines()]

    one, two, four, parts = by_case(1), by_case(2), by_case(4), by_case(2, "fsdp", 10)
    for alone, *shared, case in zip(one, two, four, parts, CASES, strict=True):
        assert alone[-1] < alone[0] - 0.01
        for found in shared:
            assert found == pytest.approx(alone, rel=case[3], abs=0), case


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
