import itertools
import math

import pytest
import torch

from gptlite.config.schema import ModelSection
from gptlite.model.cache import KVCache
from gptlite.model.gpt import GPT
from gptlite.model.loss import nll_sum


def gpt(vocab_size: int = 11, attention: str = "fused", seed: int = 0, **values) -> GPT:
    """A model with random weights: a fresh one has blocks that are the identity."""
    cfg = ModelSection(**{"n_layer": 2, "n_head": 2, "n_embd": 8, "block_size": 12, **values})
    rng = torch.Generator().manual_seed(seed)
    model = GPT(cfg, vocab_size, attention=attention, rng=rng).double()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.3 * torch.randn(p.shape, dtype=p.dtype, generator=rng))
    return model


def random_idx(*shape: int, vocab_size: int = 11, seed: int = 0) -> torch.Tensor:
    return torch.randint(vocab_size, shape, generator=torch.Generator().manual_seed(seed))


VARIANTS = [
    {},
    {"norm": "post"},
    {"position": "sinusoidal"},
    {"position": "none"},
    {"bias": True, "activation": "relu", "tie_weights": False},
    {"scale_attention": False, "n_head": 1},
    {"position": "sinusoidal", "scale_embeddings": True, "bias": ["proj", "norm"]},
]


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_later_tokens_do_not_change_earlier_logits(variant):
    model = gpt(**variant)
    a = random_idx(2, 12)
    b = a.clone()
    b[:, 7:] = (b[:, 7:] + 1) % 11
    torch.testing.assert_close(model(a)[:, :7], model(b)[:, :7], rtol=0, atol=1e-12)
    assert not torch.allclose(model(a)[:, 7:], model(b)[:, 7:])


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@pytest.mark.parametrize("attention", ["plain", "batched", "fused"])
def test_reading_in_pieces_through_a_cache_gives_the_logits_of_one_pass(variant, attention):
    model = gpt(attention=attention, **variant)
    idx = random_idx(2, 12)
    cache = KVCache(model.cfg, 2, model.cfg.block_size, like=model.token_embedding.weight)
    pieces = [model(idx[:, a:b], cache=cache) for a, b in itertools.pairwise([0, 5, 6, 9, 12])]
    torch.testing.assert_close(torch.cat(pieces, dim=1), model(idx), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("values", "variance", "tolerance"),
    [
        # A logit sums C = 512 numbers of unit variance with weights from Normal(0, 1 / sqrt(C)). The variance of 1,024
        # of them has a standard error of sqrt(2 / 1024), and positions resemble each other: half of twice that.
        ({"init": "previous"}, 1.0, math.sqrt(2 / 1024)),
        *(({"tie_weights": False, "norm": norm}, 512 * 0.02**2, 0.01) for norm in ("pre", "post")),  # Normal(0, 0.02)
    ],
    ids=str,
)
def test_initial_loss_is_that_of_a_uniform_guess_plus_half_the_variance_of_a_logit(values, variance, tolerance):
    cfg = ModelSection(n_layer=1, n_head=4, n_embd=512, block_size=32, **values)
    model = GPT(cfg, 1024, rng=torch.Generator().manual_seed(0))
    # log E[exp] of a normal variable is half its variance. Averaged over all targets, the logits themselves cancel.
    logits = model(random_idx(4, 32, vocab_size=1024))
    loss = (logits.logsumexp(-1) - logits.mean(-1)).mean().item()
    assert loss == pytest.approx(math.log(1024) + variance / 2, abs=tolerance)


def test_the_loss_sums_minus_log_probabilities_without_ignored_targets():
    logits = torch.log(torch.tensor([[[0.5, 0.25, 0.25], [0.1, 0.1, 0.8], [1.0, 1.0, 1.0]]]))
    targets = torch.tensor([[1, 2, -100]])
    assert nll_sum(logits, targets).item() == pytest.approx(-math.log(0.25) - math.log(0.8))


def test_the_gradient_of_the_loss_is_that_of_cross_entropy():
    values = 3 * torch.randn(2, 5, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    targets = torch.tensor([[0, 6, 3, -100, 2], [-100, 1, 1, 5, 4]])
    ours, reference = values.clone().requires_grad_(), values.clone().requires_grad_()
    (nll_sum(ours, targets) / 10).backward()
    (torch.nn.functional.cross_entropy(reference.flatten(0, 1), targets.flatten(), reduction="sum") / 10).backward()
    torch.testing.assert_close(ours.grad, reference.grad, rtol=1e-12, atol=1e-15)


def test_the_loss_of_a_target_that_seems_impossible_is_finite_in_training_and_exact_in_scoring():
    logits, targets = torch.tensor([[[0.0, 200.0]]]), torch.tensor([[0]])
    assert nll_sum(logits, targets).item() == pytest.approx(200.0)
    loss = nll_sum(logits.requires_grad_(), targets)
    loss.backward()
    assert loss.item() == pytest.approx(126 * math.log(2))  # 2**-126 is the smallest normal number
    assert logits.grad.tolist() == [[[-1.0, 1.0]]]


def test_the_gradient_of_the_loss_cannot_be_taken_twice():
    loss = nll_sum(torch.zeros(1, 1, 3, requires_grad=True), torch.tensor([[0]]))
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="inplace"):
        loss.backward()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_loss_of_half_precision_logits_is_summed_in_fp32(dtype):
    logits = (3 * torch.randn(2, 40, 100, generator=torch.Generator().manual_seed(0))).to(dtype)
    targets = random_idx(2, 40, vocab_size=100)
    exact = -torch.log_softmax(logits.double(), dim=-1).gather(-1, targets[..., None]).sum().item()
    for found in (nll_sum(logits, targets), nll_sum(logits.requires_grad_(), targets)):
        assert found.dtype == torch.float32
        assert found.item() == pytest.approx(exact, rel=1e-6)
    found.backward()
    assert logits.grad.dtype == dtype
