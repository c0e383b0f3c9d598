"""What an update shows when it is asked, and that asking changes nothing."""

from __future__ import annotations

import math

import pytest
import torch
from training_runs import train_new

from gptlite.compute.distributed import Dist
from gptlite.config.schema import ModelSection, RunConfig
from gptlite.model.gpt import GPT
from gptlite.training import loop
from gptlite.training.diagnostics import MAX_NUMBERS, UpdateRatio


def model(**values: object) -> GPT:
    cfg = ModelSection(**{"n_layer": 1, "n_head": 2, "n_embd": 8, "block_size": 8, **values})
    return GPT(cfg, 11, rng=torch.Generator().manual_seed(0))


def norm(tensors: list[torch.Tensor]) -> float:
    return math.sqrt(sum(float(t.double().square().sum()) for t in tensors))


@pytest.mark.parametrize(
    ("sizes", "growth", "tolerance"),
    [({}, 0, 1e-5), ({"n_embd": 128, "block_size": 64}, 1, 0.03)],  # large ones are sampled at even spacing
    ids=["all", "sampled"],
)
def test_the_update_ratio_is_the_norm_of_the_change_over_that_of_the_parameters(sizes, growth, tolerance):
    gpt = model(**sizes)
    assert (max(p.numel() for p in gpt.parameters()) > 10 * MAX_NUMBERS) == (growth > 0)
    before = [p.detach().clone() for p in gpt.parameters()]
    update_ratio = UpdateRatio(gpt, Dist())
    numbers = update_ratio.numbers()
    rng = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for i, p in enumerate(gpt.parameters()):
            p.add_(0.001 * (1 + growth * i) * torch.randn(p.shape, generator=rng))
    change = [p.detach() - old for p, old in zip(gpt.parameters(), before, strict=True)]
    assert update_ratio.ratio(numbers) == pytest.approx(norm(change) / norm(before), rel=tolerance)


def test_only_updates_that_are_written_down_are_looked_at(tiny: RunConfig, tmp_path, monkeypatch):
    looked_at = []
    plain = loop.train_step

    def train_step(trainer, step, elapsed_fraction, update_ratio):
        stats = plain(trainer, step, elapsed_fraction, update_ratio)
        looked_at.append((update_ratio is not None, "update_ratio" in stats.more, "grad_norm/head" in stats.more))
        return stats

    monkeypatch.setattr(loop, "train_step", train_step)
    cfg = tiny.with_values({"log.every": 3, "train.max_steps": 10, "train.warmup_steps": 1, "model.tie_weights": False})
    for layers in (False, True):
        train_new(cfg.with_values({"log.grad_norms": layers}), root=tmp_path / "runs")
    written = [step in (3, 6, 9, 10) for step in range(1, 11)]
    assert looked_at == [(each, each, each and layers) for layers in (False, True) for each in written]
