"""Runs in bf16, on machines that multiply it and on machines that do not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from training_runs import Lines, resume, train_new

from gptlite.compute import device
from gptlite.compute.device import Compute
from gptlite.compute.distributed import Dist
from gptlite.config.schema import ModelSection, RunConfig
from gptlite.inference.load import load_checkpoint
from gptlite.model.gpt import GPT
from gptlite.runs.find import choose_checkpoint, load_checkpoint_config
from gptlite.training import throughput
from gptlite.training.throughput import Throughput


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> dict[str, bool]:
    """Whether the CPU multiplies bf16."""
    found = {"bf16": False}
    for module in (device, throughput):
        monkeypatch.setattr(module, "computes_in_bf16", lambda _: found["bf16"])
    monkeypatch.setattr(throughput, "matmul_flops_per_second", lambda compute: 4e11)
    return found


def warnings(listener: Lines) -> list[str]:
    return [line for line in listener.heard if line.startswith("warning: run.precision")]


def test_training_in_emulated_bf16_is_announced_at_the_start_and_when_resumed(tiny, tmp_path, machine):
    cfg = tiny.with_values({"run.precision": "bf16", "run.device": "cpu", "train.max_steps": 4})
    listener = Lines()
    machine["bf16"] = True
    run = train_new(cfg, root=tmp_path, listener=listener).run
    assert warnings(listener) == []
    machine["bf16"] = False
    longer = cfg.with_values({"train.max_steps": 5})
    resume(run, longer, listener=listener)
    (warning,) = warnings(listener)
    assert "this cpu only emulates. Use run.precision=fp32 in a new run" in warning
    train_new(cfg, root=tmp_path, base="another", listener=listener)
    assert warnings(listener) == [warning, warning]
    train_new(tiny, root=tmp_path, base="fp32", listener=listener)
    assert len(warnings(listener)) == 2


@pytest.mark.parametrize(
    ("trained", "native", "asked", "used"),
    [
        ("bf16", True, [], "bf16"),
        ("bf16", False, [], "fp32"),
        ("bf16", False, ["run.precision=bf16"], "bf16"),
        ("fp32", True, [], "fp32"),
    ],
)
def test_a_model_is_used_in_fp32_where_bf16_would_be_emulated(
    tiny: RunConfig, tmp_path: Path, machine: dict[str, bool], trained: str, native: bool, asked: list[str], used: str
) -> None:
    cfg = tiny.with_values({"run.precision": trained, "run.device": "cpu", "train.max_steps": 2})
    run = train_new(cfg, root=tmp_path).run
    machine["bf16"] = native
    found = choose_checkpoint(tmp_path, run.name, None, pytest.fail)
    chosen = load_checkpoint_config(found, ["run.device=cpu", *asked]).run
    assert load_checkpoint(found, chosen).compute.precision == used


def test_the_share_of_the_peak_is_left_out_where_the_precision_is_emulated(tiny, tmp_path, machine):
    model = GPT(ModelSection(n_layer=1, n_head=1, n_embd=8, block_size=8), 11)
    compute = Compute(torch.device("cpu"), "bf16", "fused", 1)
    machine["bf16"] = True
    assert "mfu" in Throughput(model.cfg, model.vocab_size, compute, Dist()).read(300, 3.0)
    machine["bf16"] = False
    assert set(Throughput(model.cfg, model.vocab_size, compute, Dist()).read(300, 3.0)) == {
        "tokens_per_second",
        "peak_mib",
    }
    run = train_new(tiny.with_values({"run.precision": "bf16", "run.device": "cpu"}), root=tmp_path).run
    lines = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    assert all("mfu" not in line["time"] for line in lines)
