import math

import pytest
import torch
import torch.nn.functional as F

from gptlite.data.batches import IGNORED
from gptlite.model import loss as module
from gptlite.model.loss import head_nats, nats


def test_nats_add_up_minus_log_probabilities_and_leave_out_ignored_targets():
    logits = torch.log(torch.tensor([[[0.5, 0.25, 0.25], [0.1, 0.1, 0.8], [1.0, 1.0, 1.0]]]))
    targets = torch.tensor([[1, 2, IGNORED]])
    assert nats(logits, targets).item() == pytest.approx(-math.log(0.25) - math.log(0.8))


def inputs(dtype=torch.float64):
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(3, 5, 4, dtype=dtype, generator=rng).requires_grad_()
    weight = torch.randn(11, 4, dtype=dtype, generator=rng).requires_grad_()
    targets = torch.randint(0, 11, (3, 5), generator=rng)
    targets[1, 2:] = IGNORED
    return x, weight, targets


@pytest.mark.parametrize("at_a_time", [1, 11 * 4, 1 << 20], ids=["row by row", "four rows", "all"])
def test_nats_from_the_head_equal_the_plain_equation_forward_and_backward(monkeypatch, at_a_time):
    monkeypatch.setattr(module, "CPU_LOGITS", at_a_time)
    x, weight, targets = inputs()
    plain = nats(F.linear(x, weight), targets)
    fast = head_nats(x, weight, targets)
    torch.testing.assert_close(fast, plain, rtol=1e-12, atol=0)
    expected = torch.autograd.grad(plain * 0.3, (x, weight))
    torch.testing.assert_close(torch.autograd.grad(fast * 0.3, (x, weight)), expected, rtol=1e-12, atol=1e-14)


def test_without_gradients_the_sum_is_the_same():
    x, weight, targets = inputs()
    with torch.no_grad():
        assert head_nats(x, weight, targets) == head_nats(x.detach(), weight.detach(), targets)
    assert not head_nats(x.detach(), weight.detach(), targets).requires_grad


def test_under_bf16_the_products_are_rounded_and_the_sums_are_not():
    x, weight, targets = inputs(torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        plain, fast = nats(F.linear(x, weight), targets), head_nats(x, weight, targets)
    assert fast.dtype == torch.float32
    assert fast.item() == pytest.approx(plain.item(), rel=1e-6)
    expected = torch.autograd.grad(plain, (x, weight))
    for got, wanted in zip(torch.autograd.grad(fast, (x, weight)), expected, strict=True):
        torch.testing.assert_close(got, wanted, rtol=0, atol=0.02 * wanted.abs().max().item())


def test_a_token_the_model_rules_out_costs_as_much_as_it_says():
    # Logits 0 and 200: the first token has log-probability -200, whose probability fp32 cannot hold.
    x = torch.ones(1, 1, 1)
    weight = torch.tensor([[0.0], [200.0]])
    assert head_nats(x, weight, torch.tensor([[0]])).item() == pytest.approx(200.0)
    assert not math.isinf(head_nats(x, weight, torch.tensor([[0]])).item())
