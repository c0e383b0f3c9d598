"""Which inputs the model's own proposals replace, by which ids, and what the update is then made of."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch

from gptlite.compute.device import Compute
from gptlite.compute.distributed import Dist
from gptlite.config.schema import RunConfig
from gptlite.config.training import TrainSection
from gptlite.course.scheduled_sampling import draw, mixed_inputs, random_bits, replaced_fraction_at
from gptlite.data.dataset.batches import Batches
from gptlite.data.dataset.tokens import TokenArray
from gptlite.errors import Diverged
from gptlite.model.gpt import GPT
from gptlite.model.loss import nll_sum
from gptlite.tokenizers.char import CharTokenizer
from gptlite.training.objective import Objective
from gptlite.training.optim.build import build_optimizers
from gptlite.training.step import accumulate_gradients, dropout_masks_for, train_step
from gptlite.training.trainer import Trainer, assemble

CPU = Compute(torch.device("cpu"), "fp32", "fused", 1)
V, T, B = 13, 8, 8
TEXT = TokenArray(np.random.default_rng(0).integers(0, V, 3000).astype(np.uint16), "text")


def config(**values) -> RunConfig:
    small = {"model.n_layer": 2, "model.n_head": 2, "model.n_embd": 16, "model.block_size": T}
    train = {
        "batch_size": B,
        "micro_batch_size": B,
        "optimizer": "adamw",
        "max_steps": 20,
        "warmup_steps": 2,
        "lr": 0.01,
    }
    return RunConfig().with_values({**small, **{f"train.{key}": value for key, value in train.items()}, **values})


def gpt(cfg: RunConfig) -> GPT:
    """In double precision, and away from the initial values, where all proposals are about as likely."""
    rng = torch.Generator().manual_seed(0)
    model = GPT(cfg.model, V, rng=rng).double()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.3 * torch.randn(p.shape, dtype=p.dtype, generator=rng))
    return model


def trainer_for(cfg: RunConfig) -> Trainer:
    run = {
        "run.device": "cpu",
        "run.precision": "fp32",
        "run.attention": "fused",
        "run.threads": 1,
        "run.compile": False,
    }
    cfg = cfg.with_values(run)
    trainer = assemble(cfg, CharTokenizer("abcdefghijkl"), TEXT, TEXT)
    model = gpt(cfg)
    optimizers = build_optimizers(model, cfg.train, CPU)
    batches = Batches(TEXT, T, B, seed=1)
    objective = Objective(model, model.hidden, CPU, cfg.train)
    return dataclasses.replace(trainer, model=model, objective=objective, optimizers=optimizers, batches=batches)


def successor() -> GPT:
    """A model that is sure that i is followed by i + 1: one-hot embeddings, no positions, blocks that add nothing."""
    cfg = config(**{"model.n_head": 1, "model.n_embd": V, "model.position": "none", "model.tie_weights": False})
    model = GPT(cfg.model, V, rng=torch.Generator().manual_seed(0))
    with torch.no_grad():
        model.token_embedding.weight.copy_(torch.eye(V))
        model.head.weight.copy_(100 * torch.eye(V).roll(1, dims=0))
    return model


def random_inputs(n_rows: int) -> torch.Tensor:
    return torch.randint(V, (n_rows, T), generator=torch.Generator().manual_seed(1))


def mixed(share: float, x: torch.Tensor) -> torch.Tensor:
    return mixed_inputs(successor(), x, share, random_bits(1, 0, 0, *x.shape), CPU)


def test_every_input_but_the_first_of_its_window_becomes_what_follows_the_texts_own_token_before_it():
    x = random_inputs(5)
    before = x.clone()
    got = mixed(1.0, x)
    assert torch.equal(got[:, 0], x[:, 0])
    assert torch.equal(got[:, 1:], (x[:, :-1] + 1) % V)
    assert torch.equal(x, before)
    assert torch.equal(mixed(0.0, x), x)


@pytest.mark.parametrize("share", [0.05, 0.3, 0.9])
def test_the_share_of_inputs_that_are_replaced_is_the_one_asked_for_everywhere_in_the_window(share):
    n = 10_000
    replaced = mixed(share, torch.zeros(n, T, dtype=torch.int64))[:, 1:] == 1
    deviation = math.sqrt(share * (1 - share) / n)
    assert (replaced.double().mean(0) - share).abs().max() < 4 * deviation
    # Neighbours, in a window and between windows, know nothing of each other: both with probability share * share.
    for a, b in ((replaced[:, 1:], replaced[:, :-1]), (replaced[1:], replaced[:-1])):
        both = (a & b).double().mean().item()
        assert both == pytest.approx(share * share, abs=4 * deviation)


def chi_square(ids: torch.Tensor, expected: torch.Tensor) -> float:
    counts = torch.bincount(ids, minlength=len(expected)).double()
    wanted = expected * len(ids)
    return float(((counts - wanted) ** 2 / wanted).sum())


def test_ids_are_drawn_as_often_as_the_softmax_says_and_never_one_of_probability_0():
    p = torch.tensor([0.5, 0.25, 0.15, 0.09, 0.01], dtype=torch.float64)
    numbers = torch.from_numpy((random_bits(3, 7, 0, 2000, 50) & np.uint64(2**32 - 1)).astype(np.int64)).flatten()
    logits = torch.cat([p.log() + 3.0, torch.tensor([-math.inf])]).expand(len(numbers), 6)
    ids = draw(logits, numbers)
    assert ids.max() == 4
    assert chi_square(ids, p) < 18.5  # 4 degrees of freedom: above it once in a thousand


def test_which_id_replaces_an_input_knows_nothing_of_whether_one_does():
    model, share = successor(), 0.3
    torch.nn.init.zeros_(model.head.weight)  # any id is as likely as any other
    x = torch.zeros(10_000, T, dtype=torch.int64)
    got = mixed_inputs(model, x, share, random_bits(1, 0, 0, *x.shape), CPU)[:, 1:].flatten()
    expected = torch.full((V,), share / V, dtype=torch.float64)
    expected[0] += 1 - share
    assert chi_square(got, expected) < 32.9  # 12 degrees of freedom: above it once in a thousand


def test_the_share_rises_from_nothing_to_where_one_more_update_would_follow():
    cfg = TrainSection(scheduled_sampling=0.4, max_steps=100)
    assert [replaced_fraction_at(step, cfg) for step in (0, 50, 99)] == pytest.approx([0.0, 0.2, 0.396])
    by_the_clock = TrainSection(scheduled_sampling=0.4, max_minutes=3)
    assert [replaced_fraction_at(70, by_the_clock, gone) for gone in (0.0, 0.5, 1.0)] == pytest.approx([0.0, 0.2, 0.4])


def own_share(step: int, **values) -> float:
    """The probability of the text's own token in the update after `step` others, of 100."""
    named = {f"scheduled_sampling_{key}": value for key, value in values.items() if key != "last"}
    return 1 - replaced_fraction_at(step, TrainSection(scheduled_sampling=values["last"], max_steps=100, **named))


STEPS = (0, 1, 10, 50, 99)


def test_the_decays_are_those_of_the_paper():
    # k minus c i, at its floor after 40 of 100 updates; k to the power i; and k / (k + exp(i / k)).
    linear = [max(0.3, 0.9 - 0.6 / 40 * i) for i in STEPS]
    assert [own_share(i, last=0.7, start=0.1, until=0.4) for i in STEPS] == pytest.approx(linear)
    k = 0.98
    got = [own_share(i, last=1 - k**100, decay="exponential") for i in STEPS]
    assert got == pytest.approx([k**i for i in STEPS])
    held = [own_share(i, last=1 - k**50, decay="exponential", until=0.5) for i in STEPS]
    assert held == pytest.approx([max(k**50, k**i) for i in STEPS])
    for k in (10.0, 20.0, 25.0):
        paper = [k / (k + math.exp(i / k)) for i in (*STEPS, 100)]
        got = [own_share(i, last=1 - paper[-1], decay="inverse_sigmoid", start=1 - paper[0]) for i in STEPS]
        assert got == pytest.approx(paper[:-1], abs=1e-12)


def test_the_share_is_a_metric_of_every_update_with_it_and_of_no_other():
    trainer = trainer_for(config(**{"train.scheduled_sampling": 0.5, "train.scheduled_sampling_start": 0.1}))
    assert train_step(trainer, 5).more == {"scheduled_sampling": pytest.approx(0.2)}
    assert train_step(trainer_for(config()), 5).more == {}


def gradients(cfg: RunConfig, processes: int = 1) -> list[torch.Tensor]:
    trainer = trainer_for(cfg)
    for rank in range(processes):  # what a process adds before they exchange it
        accumulate_gradients(dataclasses.replace(trainer, dist=Dist(rank, processes)), 3, replaced_fraction=0.5)
    return [p.grad for p in trainer.model.parameters()]


def test_the_gradient_is_that_of_training_on_the_mixed_inputs_with_dropout_in_the_second_pass_only():
    cfg = config(**{"model.dropout": 0.2})
    x, y = Batches(TEXT, T, B, seed=1).rows(3)
    model = gpt(cfg)
    inputs = mixed_inputs(model, x, 0.5, random_bits(cfg.run.seed, 3, 0, B, T), CPU)
    assert 10 < int((inputs != x).sum()) < 40
    (nll_sum(model(inputs, dropout_masks=dropout_masks_for(cfg, 3, 0, 0)), y) / (B * T)).backward()
    expected = [p.grad for p in model.parameters()]
    assert all(torch.equal(a, b) for a, b in zip(gradients(cfg), expected, strict=True))


@pytest.mark.parametrize(("micro", "processes"), [(4, 1), (1, 1), (4, 2), (2, 4)])
def test_however_a_batch_is_cut_up_the_same_inputs_are_replaced(micro, processes):
    whole = gradients(config())
    parts = gradients(config(**{"train.micro_batch_size": micro}), processes)
    for a, b in zip(whole, parts, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-15)


def train(cfg: RunConfig, monkeypatch: pytest.MonkeyPatch) -> tuple[list[float], int]:
    """Losses of three updates, and how often the model read a batch for them."""
    trainer, passes = trainer_for(cfg), 0
    hidden = trainer.model.hidden

    def counted(*args, **kwargs):
        nonlocal passes
        passes += 1
        return hidden(*args, **kwargs)

    monkeypatch.setattr(trainer.model, "hidden", counted)  # of the first pass
    trainer = dataclasses.replace(trainer, objective=Objective(trainer.model, counted, CPU, trainer.cfg.train))
    return [train_step(trainer, step).loss for step in range(3)], passes


def test_without_it_there_is_one_pass_and_with_it_two_from_the_second_update_on(monkeypatch):
    plain, passes = train(config(), monkeypatch)
    assert passes == 3
    sampled, passes = train(config(**{"train.scheduled_sampling": 1.0, "train.max_steps": 3}), monkeypatch)
    assert passes == 1 + 2 + 2
    assert sampled[:1] == plain[:1]
    assert not set(sampled[1:]) & set(plain[1:])


def test_a_model_that_proposes_nothing_finite_is_reported_as_any_other(monkeypatch):
    trainer = trainer_for(config(**{"train.scheduled_sampling": 1.0}))
    with torch.no_grad():
        trainer.model.token_embedding.weight.fill_(math.nan)
    with pytest.raises(Diverged, match="step 11: the loss is nan"):
        train_step(trainer, 10).check_finite(trainer.cfg)
