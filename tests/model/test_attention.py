import math

import pytest
import torch

from gptlite.model.attention import (
    AttentionOptions,
    batched_attention,
    causal_mask,
    fused_attention,
    plain_attention,
    reference_attention,
)
from gptlite.model.dropout import DropoutMasks


def qkv(n_queries: int, n_keys: int, head_size: int = 5) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    rng = torch.Generator().manual_seed(n_queries * 100 + n_keys)

    def normal(length: int) -> torch.Tensor:
        return torch.randn(2, 3, length, head_size, dtype=torch.float64, generator=rng).requires_grad_()

    return normal(n_queries), normal(n_keys), normal(n_keys)


def weights_of(q: torch.Tensor, k: torch.Tensor, *, scale: float) -> torch.Tensor:
    """exp of the scores over their sum up to each query's own position."""
    exponentials = torch.einsum("bhtd,bhsd->bhts", q, k).mul(scale).exp().tril()
    return exponentials / exponentials.sum(-1, keepdim=True)


def test_plain_attention_is_a_weighted_mean_worked_out_by_hand():
    # One head of size 1, scale 1: scores of the second query are q*k = 1*0 and 1*ln 3, so weights 1/4 and 3/4.
    q = torch.tensor([[[[0.0], [1.0]]]])
    k = torch.tensor([[[[0.0], [math.log(3.0)]]]])
    v = torch.tensor([[[[8.0], [4.0]]]])
    out = plain_attention(q, k, v, AttentionOptions(scale=1.0))
    torch.testing.assert_close(out, torch.tensor([[[[8.0], [0.25 * 8 + 0.75 * 4]]]]))


@pytest.mark.parametrize("fast", [batched_attention, fused_attention])
@pytest.mark.parametrize(("n_queries", "n_keys"), [(1, 1), (7, 7), (1, 6), (3, 8)])
@pytest.mark.parametrize("scale", [0.4, 1.0])
def test_fast_attention_equals_the_plain_equation_forward_and_backward(fast, n_queries, n_keys, scale):
    inputs = qkv(n_queries, n_keys)
    plain = plain_attention(*inputs, AttentionOptions(scale=scale))
    got = fast(*inputs, AttentionOptions(scale=scale))
    torch.testing.assert_close(got, plain, rtol=1e-10, atol=1e-12)
    seed = torch.randn_like(plain)
    expected = torch.autograd.grad(plain, inputs, seed)
    gradients = torch.autograd.grad(got, inputs, seed)
    torch.testing.assert_close(gradients, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("attend", [plain_attention, batched_attention, fused_attention])
def test_masked_keys_change_nothing_on_every_path(attend):
    lengths = torch.tensor([2, 5])
    q, k, v = (x.detach() for x in qkv(1, 5))
    attention_mask = (torch.arange(5) < lengths[:, None])[:, None, None]  # (B, 1, 1, S)
    together = attend(q, k, v, AttentionOptions(scale=0.4, attention_mask=attention_mask))
    for row, n in enumerate(lengths.tolist()):
        alone = plain_attention(q[[row]], k[[row], :, :n], v[[row], :, :n], AttentionOptions(scale=0.4))
        torch.testing.assert_close(together[[row]], alone, rtol=1e-10, atol=1e-12)


def test_the_steps_of_the_equation_are_those_of_its_parts():
    q, k, v = (x.detach() for x in qkv(4, 4))
    steps = reference_attention(q, k, v, AttentionOptions(scale=0.5))
    torch.testing.assert_close(steps.scores, torch.einsum("bhtd,bhsd->bhts", q, k) / 2)
    past = torch.ones(4, 4).tril().bool()
    assert torch.equal(steps.masked[..., past], steps.scores[..., past])
    assert bool((steps.masked[..., ~past] == -math.inf).all())
    assert bool((steps.weights[..., ~past] == 0).all())
    weights = weights_of(q, k, scale=0.5)
    torch.testing.assert_close(steps.weights, weights)
    torch.testing.assert_close(steps.heads, torch.einsum("bhts,bhsd->bhtd", weights, v))


def test_the_last_query_attends_to_every_key_and_the_first_to_the_past():
    mask = causal_mask(2, 4, torch.device("cpu"))
    assert mask.tolist() == [[True, True, True, False], [True, True, True, True]]


@pytest.mark.parametrize("attend", [plain_attention, batched_attention, fused_attention])
def test_dropout_applies_to_the_softmax_weights_with_equal_masks_on_every_path(attend):
    q, k, v = (x.detach() for x in qkv(6, 6))
    kept = ~DropoutMasks(1).dropped((2, 3, 6, 6), 0.25)
    expected = torch.einsum("bhts,bhsd->bhtd", weights_of(q, k, scale=0.4) * kept / 0.75, v)
    got = attend(q, k, v, AttentionOptions(scale=0.4, p=0.25, dropout_masks=DropoutMasks(1)))
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)
