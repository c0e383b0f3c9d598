"""The surprise of the targets: the plain equation, and one that never holds all logits at once.

Shapes: N tokens in all, C = n_embd, V = vocab_size.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from gptlite.data.batches import IGNORED

# Logits at a time, which bounds the memory they take; on a CPU smaller parts measured slower.
CPU_LOGITS, GPU_LOGITS = 1 << 24, 1 << 27


def nats(logits: Tensor, targets: Tensor) -> Tensor:
    """Sum of -log p(target) over all scored targets: (B, T, V), (B, T) -> scalar, in nats, at least fp32.

    Targets equal to IGNORED are left out.
    """
    logits = logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="sum")


def head_nats(x: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """nats(x @ weight^T, targets) for features x (B, T, C), the head's weight (V, C) and targets (B, T).

    A part of the rows at a time, and each part's gradient right away: with P = softmax(logits) and Y the targets as
    one-hot rows, d nats / d logits = P - Y, so d nats / d x = (P - Y) W and d nats / d W = (P - Y)^T x.
    """
    rows, column = x.flatten(0, -2), targets.flatten()
    if torch.is_grad_enabled():
        result: Tensor = _HeadNats.apply(rows, weight, column)
        return result
    return _head_nats(rows, weight, column, None, None)


def _head_nats(x: Tensor, weight: Tensor, targets: Tensor, d_x: Tensor | None, d_weight: Tensor | None) -> Tensor:
    """(N, C), (V, C), (N,) -> scalar; the gradients are written into `d_x` and added to `d_weight` if given."""
    device = x.device.type
    of_products = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight.dtype
    w = weight.to(of_products)
    total = torch.zeros((), dtype=weight.dtype, device=x.device)
    n_rows = max(1, (CPU_LOGITS if device == "cpu" else GPU_LOGITS) // weight.size(0))
    for start in range(0, x.size(0), n_rows):
        part = slice(start, start + n_rows)
        h, target = x[part].to(of_products), targets[part, None]
        log_p = torch.log_softmax((h @ w.mT).to(weight.dtype), dim=-1)  # (rows, V)
        scored = (target != IGNORED).to(log_p.dtype)
        column = target.clamp(min=0)  # any, where nothing is scored
        total -= (log_p.gather(1, column) * scored).sum()
        if d_x is not None and d_weight is not None:
            d_logits = log_p.exp_().scatter_add_(1, column, -torch.ones_like(scored)).to(of_products)  # P - Y
            d_x[part] = (d_logits @ w) * scored
            d_weight += (d_logits.mT @ (h * scored.to(of_products))).to(weight.dtype)
    return total


class _HeadNats(torch.autograd.Function):
    """Its forward pass leaves nothing to do for the backward one but to scale."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
        d_x, d_weight = torch.empty_like(x), torch.zeros_like(weight)
        total = _head_nats(x, weight, targets, d_x, d_weight)
        ctx.save_for_backward(d_x, d_weight)
        return total

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor, Tensor, None]:
        d_x, d_weight = ctx.saved_tensors
        return d_x * outer[0], d_weight * outer[0], None
