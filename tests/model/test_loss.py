"""The loss of many logits: computed in parts, and from a head that is padded, it is that of all at once."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gptlite.model import loss
from gptlite.model.loss import IGNORE_INDEX, nll_sum_of_states

B, T, C, V = 2, 7, 5, 13


def loss_and_gradients(multiple: int) -> list[Tensor]:
    torch.manual_seed(0)
    hidden = torch.randn(B, T, C, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(V, C, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(V, (B, T))
    targets[1, -2:] = IGNORE_INDEX
    nll = nll_sum_of_states(hidden, weight, targets, multiple)
    return [nll.detach(), *torch.autograd.grad(nll / 3, (hidden, weight))]


@pytest.mark.parametrize("rows", [1, 4, 14])  # 14 tokens: a part each, three whole parts and a half, all in one
@pytest.mark.parametrize("multiple", [1, 8])
def test_the_loss_in_parts_and_with_a_padded_head_is_that_of_all_logits_at_once(rows, multiple, monkeypatch):
    whole = loss_and_gradients(1)
    monkeypatch.setattr(loss, "MAX_LOGITS", rows * V)
    for part, expected in zip(loss_and_gradients(multiple), whole, strict=True):
        torch.testing.assert_close(part, expected, rtol=1e-12, atol=1e-12)


def test_no_more_logits_are_held_at_a_time_than_are_allowed(monkeypatch):
    sizes = []
    logits_of = loss.logits_of

    def noting(*arguments: Tensor) -> Tensor:
        logits = logits_of(*arguments)
        sizes.append(logits.numel())
        return logits

    monkeypatch.setattr(loss, "MAX_LOGITS", 60)
    monkeypatch.setattr(loss, "logits_of", noting)
    loss_and_gradients(1)
    assert sizes == [52, 52, 39, 39]  # 4 rows of 13 logits, or 3
