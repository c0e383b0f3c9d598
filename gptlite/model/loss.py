"""The loss in training: the sum of -log p(target) over the tokens of a batch, and its gradient in little memory.

Shapes: B sequences, T tokens, N = B T, C = n_embd, V = vocab_size.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from gptlite.model.sizes import MAX_LOGITS

IGNORE_INDEX = -100  # a target that is not scored


def nll_sum_of_states(hidden: Tensor, weight: Tensor, targets: Tensor, multiple: int = 1) -> Tensor:
    """Return `nll_sum` of the logits that the head gives: (B, T, C), its (V, C), (B, T) -> scalar.

    Where there are more than MAX_LOGITS logits, they are computed in parts. The gradient can be taken once.
    """
    if targets.numel() * weight.size(0) <= MAX_LOGITS:
        return nll_sum(logits_of(hidden, weight, multiple), targets)
    loss: Tensor = _NLLSumInParts.apply(  # type: ignore[no-untyped-call]
        hidden.flatten(0, 1), weight, targets.flatten(), multiple
    )
    return loss


def logits_of(hidden: Tensor, weight: Tensor, multiple: int = 1) -> Tensor:
    """Return the logits, (..., C), (V, C) -> (..., V), of a product whose V is padded to a multiple of this number."""
    V = weight.size(0)
    padding = -V % multiple
    return F.linear(hidden, F.pad(weight, (0, 0, 0, padding)) if padding else weight)[..., :V]


class _NLLSumInParts(torch.autograd.Function):
    """The loss, with its gradient taken in the forward pass, so that the logits of one part are held at a time."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, multiple: int) -> Tensor:
        """Return the loss: (N, C), (V, C), (N,) -> scalar."""
        # Parts of about one size, so that each can use the memory of the one before.
        n_parts = math.ceil(targets.numel() * weight.size(0) / MAX_LOGITS)
        parts = zip(torch.tensor_split(hidden, n_parts), torch.tensor_split(targets, n_parts), strict=True)
        grad_weight, grads_hidden, loss = torch.zeros_like(weight), [], []
        head = weight.detach().requires_grad_()  # once: autocast keeps a half of each leaf that it sees
        for states, of_states in parts:
            leaves = states.detach().requires_grad_(), head
            with torch.enable_grad():
                nll = nll_sum(logits_of(*leaves, multiple)[None], of_states[None])
            grad_states, grad = torch.autograd.grad(nll, leaves)
            grads_hidden.append(grad_states)
            grad_weight += grad
            loss.append(nll.detach())
        ctx.save_for_backward(torch.cat(grads_hidden), grad_weight)
        return torch.stack(loss).sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        """Return the gradients of hidden and weight."""
        grad_hidden, grad_weight = ctx.saved_tensors
        return grad_hidden * gradient.to(grad_hidden.dtype), grad_weight * gradient.to(grad_weight.dtype), None, None


class _NLLSum(torch.autograd.Function):
    """The loss with its gradient, softmax(logits) - onehot(targets), in the memory of the softmax.

    `F.cross_entropy` writes three matrices of the size of the logits where this writes one. For a large vocabulary that
    is much of an update's time and memory.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the loss: (N, V), (N,) -> scalar. Probabilities below the smallest normal number count as that."""
        probabilities = torch.softmax(logits, dim=-1, dtype=_at_least_fp32(logits))
        scored = targets != IGNORE_INDEX
        columns = targets.clamp(min=0)[:, None]  # ignored ones need a column, too
        ctx.save_for_backward(probabilities, columns, scored)
        ctx.dtype = logits.dtype
        of_targets = probabilities.gather(1, columns)[:, 0].clamp(min=torch.finfo(probabilities.dtype).tiny)
        return -(of_targets.log() * scored).sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """Return the gradient of the logits, once: it overwrites the probabilities."""
        probabilities, columns, scored = ctx.saved_tensors
        grad_logits = probabilities.scatter_add_(1, columns, probabilities.new_full((1, 1), -1.0).expand_as(columns))
        return grad_logits.mul_((gradient * scored)[:, None]).to(ctx.dtype), None


def nll_sum(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the loss: sum of -log p(target), in nats, at least fp32: (B, T, V), (B, T) -> scalar.

    Targets of -100 are left out. The gradient can be taken once.
    """
    flat, flat_targets = logits.flatten(0, 1), targets.flatten()
    if logits.requires_grad:
        loss: Tensor = _NLLSum.apply(flat, flat_targets)  # type: ignore[no-untyped-call]
        return loss
    return F.cross_entropy(flat.to(_at_least_fp32(logits)), flat_targets, reduction="sum", ignore_index=IGNORE_INDEX)


def _at_least_fp32(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)
