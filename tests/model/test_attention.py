import math

import pytest
import torch

from gptlite.model.attention import causal_mask, dropout, fused_attention, plain_attention


def qkv(n_queries: int, n_keys: int, head_size: int = 5) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    rng = torch.Generator().manual_seed(n_queries * 100 + n_keys)

    def normal(length: int) -> torch.Tensor:
        return torch.randn(2, 3, length, head_size, dtype=torch.float64, generator=rng).requires_grad_()

    return normal(n_queries), normal(n_keys), normal(n_keys)


def test_plain_attention_is_a_weighted_mean_worked_out_by_hand():
    # One head of size 1, scale 1: scores of the second query are q*k = 1*0 and 1*ln 3, so weights 1/4 and 3/4.
    q = torch.tensor([[[[0.0], [1.0]]]])
    k = torch.tensor([[[[0.0], [math.log(3.0)]]]])
    v = torch.tensor([[[[8.0], [4.0]]]])
    out = plain_attention(q, k, v, scale=1.0)
    torch.testing.assert_close(out, torch.tensor([[[[8.0], [0.25 * 8 + 0.75 * 4]]]]))


@pytest.mark.parametrize(("n_queries", "n_keys"), [(1, 1), (7, 7), (1, 6), (3, 8)])
@pytest.mark.parametrize("scale", [0.4, 1.0])
def test_fused_attention_equals_the_plain_equation_forward_and_backward(n_queries, n_keys, scale):
    inputs = qkv(n_queries, n_keys)
    plain = plain_attention(*inputs, scale=scale)
    fused = fused_attention(*inputs, scale=scale)
    torch.testing.assert_close(fused, plain, rtol=1e-10, atol=1e-12)
    seed = torch.randn_like(plain)
    expected = torch.autograd.grad(plain, inputs, seed)
    got = torch.autograd.grad(fused, inputs, seed)
    torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-12)


def test_the_last_query_sees_every_key_and_the_first_one_only_the_past():
    mask = causal_mask(2, 4, torch.device("cpu"))
    assert mask.tolist() == [[True, True, True, False], [True, True, True, True]]


def test_dropout_with_one_generator_state_gives_one_mask_and_touches_no_global_state():
    x = torch.ones(1000)
    before = torch.random.get_rng_state()
    a = dropout(x, 0.25, torch.Generator().manual_seed(3))
    b = dropout(x, 0.25, torch.Generator().manual_seed(3))
    assert torch.equal(a, b)
    assert torch.equal(before, torch.random.get_rng_state())
    assert sorted(set(a.tolist())) == pytest.approx([0.0, 4 / 3])
    # 250 zeros expected, standard deviation 13.7.
    assert 180 < int((a == 0).sum()) < 320


def test_attention_with_dropout_draws_the_same_masks_on_every_path():
    q, k, v = qkv(6, 6)
    plain = plain_attention(q, k, v, scale=1.0, p=0.5, rng=torch.Generator().manual_seed(1))
    fused = fused_attention(q, k, v, scale=1.0, p=0.5, rng=torch.Generator().manual_seed(1))
    assert torch.equal(plain, fused)
    assert not torch.equal(plain, plain_attention(q, k, v, scale=1.0))
