import math

import pytest
import torch

from gptlite.compute.device import Compute
from gptlite.config.schema import ModelSection
from gptlite.config.training import TrainSection
from gptlite.model.gpt import GPT
from gptlite.training.optim.build import AdamW, build_optimizers, load_named_state, named_state, set_lr

CPU = Compute(torch.device("cpu"), "fp32", "fused", 1)


def gpt(**values) -> GPT:
    cfg = ModelSection(**{"n_layer": 2, "n_head": 2, "n_embd": 8, "block_size": 4, "bias": True, **values})
    return GPT(cfg, 11, rng=torch.Generator().manual_seed(0))


def section(optimizer: str) -> TrainSection:
    return TrainSection(lr=0.003, optimizer=optimizer, adamw_lr=0.012 if optimizer == "muon" else None)


def test_next_to_muon_adamw_follows_the_schedule_at_its_own_rate():
    muon, adamw = build_optimizers(gpt(), section("muon"), CPU)
    set_lr([muon, adamw], 0.001)
    assert {group["lr"] for group in muon.param_groups} == {0.001}
    assert {group["lr"] for group in adamw.param_groups} == {0.004}
    (_, like_muon) = build_optimizers(gpt(), TrainSection(lr=0.003, optimizer="muon", adamw_lr=None), CPU)
    set_lr([like_muon], 0.001)
    assert {group["lr"] for group in like_muon.param_groups} == {0.001}
    (alone,) = build_optimizers(gpt(), section("adamw"), CPU)
    set_lr([alone], 0.001)
    assert {group["lr"] for group in alone.param_groups} == {0.001}


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("tie_weights", [True, False])
def test_every_parameter_has_one_optimizer_and_only_multiplying_matrices_decay(optimizer, tie_weights):
    model = gpt(tie_weights=tie_weights)
    groups = [g for o in build_optimizers(model, section(optimizer), CPU) for g in o.param_groups]
    owned = [p for g in groups for p in g["params"]]
    assert len(owned) == len({id(p) for p in owned}) == len(list(model.parameters()))
    decayed = {id(p) for g in groups if g["weight_decay"] > 0 for p in g["params"]}
    for name, p in model.named_parameters():
        multiplies = name == "head.weight" or (name.startswith("blocks") and p.ndim == 2)
        assert (id(p) in decayed) == multiplies, name


def test_updates_are_those_of_adamw_worked_out_by_hand():
    model = gpt().double()
    section = TrainSection(lr=0.01, optimizer="adamw", beta1=0.7, beta2=0.9, weight_decay=0.3)
    optimizers = build_optimizers(model, section, CPU)
    decayed, plain = model.blocks[0].mlp.up.weight.detach(), model.ln_f.weight.detach()
    expected, mean, square = [float(decayed[0, 0]), float(plain[0])], 0.0, 0.0
    for step, gradient in enumerate((3e-8, -1e-8, 2e-8), start=1):  # so small that epsilon counts
        for p in model.parameters():
            p.grad = torch.full_like(p, gradient)
        for optimizer in optimizers:
            optimizer.step()
        mean, square = 0.7 * mean + 0.3 * gradient, 0.9 * square + 0.1 * gradient**2
        move = 0.01 * (mean / (1 - 0.7**step)) / (math.sqrt(square / (1 - 0.9**step)) + 1e-8)
        expected = [x * (1 - 0.01 * decay) - move for x, decay in zip(expected, (0.3, 0.0), strict=True)]
        assert [float(decayed[0, 0]), float(plain[0])] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_state_put_back_by_name_continues_bit_for_bit(optimizer):
    def step(model: GPT, optimizers, seed: int) -> None:
        for i, p in enumerate(model.parameters()):
            p.grad = torch.randn(p.shape, generator=torch.Generator().manual_seed(seed + i))
        for o in optimizers:
            o.step()

    cfg = section(optimizer)
    first = gpt()
    before = build_optimizers(first, cfg, CPU)
    step(first, before, 1)
    second = gpt()
    second.load_state_dict(first.state_dict())
    after = build_optimizers(second, cfg, CPU)
    load_named_state(second, after, {name: t.clone() for name, t in named_state(first, before).items()})
    step(first, before, 100)
    step(second, after, 100)
    for (name, a), (_, b) in zip(first.named_parameters(), second.named_parameters(), strict=True):
        assert torch.equal(a, b), name


def test_adamw_takes_other_betas_next_to_muon_unless_they_are_given():
    def betas(**values):
        *_, adamw = build_optimizers(gpt(), TrainSection(lr=0.01, adamw_lr=None, **values), CPU)
        return adamw.param_groups[0]["betas"]

    assert betas(optimizer="adamw") == (0.9, 0.95)
    assert betas(optimizer="muon") == (0.8, 0.98)
    assert betas(optimizer="muon", beta1=0.5) == (0.5, 0.98)
    assert betas(optimizer="adamw", beta2=0.999) == (0.9, 0.999)


def test_an_update_of_adamw_is_that_of_torch():
    ours, theirs = (torch.nn.Parameter(torch.linspace(-1, 1, 12).view(3, 4)) for _ in range(2))
    settings = {"lr": 0.1, "betas": (0.9, 0.95), "weight_decay": 0.3, "fused": True}
    a, b = AdamW([ours], **settings), torch.optim.AdamW([theirs], **settings)
    for step in range(5):
        for p, optimizer in ((ours, a), (theirs, b)):
            (p**2 * (step + 1)).sum().backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
    assert ours.grad is None
    assert torch.equal(ours, theirs)
