"""The loss from a sample of the vocabulary: exact where all ids are drawn, without bias where they are not."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from gptlite.config.schema import ModelSection
from gptlite.model.sampled_softmax import (
    VocabSampler,
    inclusion_probabilities,
    sampled_nll_sum,
)
from gptlite.model.sizes import default_sample_size

V, C, B, T = 40, 8, 3, 5
COUNTS = np.array([5000 // (i + 1) ** 2 for i in range(V)])  # of frequent and of rare ids, some of which never occur


def inputs(dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    rng = torch.Generator().manual_seed(0)
    hidden = torch.randn(B, T, C, generator=rng, dtype=dtype, requires_grad=True)
    weight = (0.3 * torch.randn(V, C, generator=rng, dtype=dtype)).requires_grad_()
    return hidden, weight, torch.randint(0, V, (B, T), generator=rng)


def loss_and_gradients(seed: int, size: int) -> list[torch.Tensor]:
    hidden, weight, targets = inputs()
    loss = sampled_nll_sum(hidden, weight, targets, VocabSampler(COUNTS, size).sample(seed))
    return [loss.detach(), *torch.autograd.grad(loss, (hidden, weight))]


def exact() -> list[torch.Tensor]:
    hidden, weight, targets = inputs()
    loss = F.cross_entropy((hidden @ weight.T).flatten(0, 1), targets.flatten(), reduction="sum")
    return [loss.detach(), *torch.autograd.grad(loss, (hidden, weight))]


def test_with_all_ids_it_is_the_cross_entropy_and_its_gradient():
    for found, expected in zip(loss_and_gradients(seed=1, size=V), exact(), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("size", [1, 7, 20])
def test_of_a_sample_loss_and_gradient_are_those_of_the_equation(size):
    hidden, weight, targets = inputs()
    sample = VocabSampler(COUNTS, size).sample(seed=1)
    logits = hidden @ weight.T  # Z sums the target, and each other id that was drawn over its probability
    others = torch.full((V,), -math.inf, dtype=torch.float64).index_copy(0, sample.ids, sample.log_weights.double())
    others = others.expand(B, T, V).scatter(2, targets[..., None], 0.0)
    loss = ((logits + others).logsumexp(-1) - logits.gather(2, targets[..., None])[..., 0]).sum()
    expected = [loss.detach(), *torch.autograd.grad(loss, (hidden, weight))]
    for found, by_autograd in zip(loss_and_gradients(1, size), expected, strict=True):
        torch.testing.assert_close(found, by_autograd, rtol=1e-7, atol=1e-9)


def test_probabilities_grow_with_the_counts_and_add_up_to_the_size():
    p = inclusion_probabilities(COUNTS, 20)
    assert p.sum() == pytest.approx(20)
    assert (np.diff(p) <= 0).all()
    assert p[:5].tolist() == [1.0] * 5
    assert 0 < p[-1] < 0.5
    # (count + 1)^0.75 among those that are not always drawn.
    assert p[20] / p[-1] == pytest.approx(((COUNTS[20] + 1) / (COUNTS[-1] + 1)) ** 0.75)


def test_so_many_ids_are_drawn_each_as_often_as_its_probability_says_and_by_the_seed_alone():
    sampler, p = VocabSampler(COUNTS, 20), inclusion_probabilities(COUNTS, 20)
    drawn = np.zeros(V)
    for seed in range(2000):
        sample = sampler.sample(seed)
        assert len(set(sample.ids.tolist())) == 20
        drawn[sample.ids] += 1
        assert sample.columns[sample.ids].tolist() == list(range(len(sample.ids)))
        assert int((sample.columns < 0).sum()) == V - len(sample.ids)
    assert (abs(drawn / 2000 - p) <= 4.5 * np.sqrt(p * (1 - p) / 2000)).all()
    assert torch.equal(sampler.sample(7).ids, sampler.sample(7).ids)
    assert not torch.equal(sampler.sample(7).ids, sampler.sample(8).ids)
    torch.testing.assert_close(sampler.sample(7).log_weights.exp(), torch.tensor(1 / p[sampler.sample(7).ids]).float())


def test_under_autocast_the_products_are_bf16_and_the_gradients_those_of_the_parameters():
    hidden, weight, targets = inputs(torch.float32)
    sample = VocabSampler(COUNTS, 20).sample(3)
    exact_loss = sampled_nll_sum(hidden, weight, targets, sample)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = sampled_nll_sum(hidden, weight, targets, sample)
    assert loss.item() == pytest.approx(exact_loss.item(), rel=1e-2)
    assert loss.item() != exact_loss.item()
    loss.backward()
    assert (hidden.grad.dtype, weight.grad.dtype) == (torch.float32, torch.float32)


@pytest.mark.parametrize(
    ("n_layer", "n_embd", "vocab_size", "expected"),
    # The blocks have 12 n_layer n_embd^2 weights, the head has vocab_size n_embd: more than half of them up to
    # 6 n_layer n_embd ids.
    [(1, 8, 66, None), (1, 8, 2047, None), (1, 8, 2048, 768), (4, 128, 4096, 1536), (4, 192, 4096, None)],
)
def test_only_a_large_vocabulary_is_sampled_whose_head_is_a_third_of_the_model(n_layer, n_embd, vocab_size, expected):
    cfg = ModelSection(n_layer=n_layer, n_head=1, n_embd=n_embd)
    assert default_sample_size(cfg, vocab_size) == expected
