"""The loss estimated from a sample of the vocabulary: cheaper in training where the vocabulary is large.

-log p(target) = log Z - logit(target), where Z sums exp(logit) over all ids. Z is estimated from the target itself and
a sample of the other ids, each weighted by one over the probability with which it is drawn (importance sampling: Bengio
and Senécal 2008; Jean et al. 2015, arXiv 1412.2007, section 3). The estimate of Z has no bias, and little variance
since frequent ids are always drawn. So the loss and its gradient are nearly those of all ids.

Shapes: N tokens, C = n_embd, V = vocab_size, S sampled ids.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gptlite.seeds import mix_arrays

FREQUENCY_POWER = 0.75  # an id is drawn in proportion to its frequency to this power, at most always
NEVER = -1e30  # a logit of no weight; minus infinity would give nan where it is the only one


@dataclass(frozen=True)
class VocabSample:
    """Some ids of the vocabulary, and one over the probability of each: a sum over them estimates one over all ids."""

    ids: Tensor  # (S,) int64, ascending
    log_weights: Tensor  # (S,)
    columns: Tensor  # (V,) int64: where an id is in `ids`; -1: it is not


class VocabSampler:
    """Draws `size` ids, the frequent ones always: each sample is a pure function of its seed.

    Samples of one size keep the shapes of an update: a CPU's bf16 products are compiled for each shape anew.
    """

    def __init__(self, counts: npt.NDArray[np.int64], size: int) -> None:
        self._probabilities, self._size = inclusion_probabilities(counts, size), size

    def sample(self, seed: int, device: torch.device | None = None) -> VocabSample:
        """Draw the ids of one update, by systematic sampling (Madow 1949).

        The ids lie side by side in a random order, each as long as it is probable: `size` in all. Points at a distance
        of 1 from each other, the first at random, hit each id as often as its probability says, and never twice.
        """
        V = len(self._probabilities)
        numbers = mix_arrays(seed, np.arange(V + 1, dtype=np.uint64))
        order, first = np.argsort(numbers[:V]), int(numbers[V] >> np.uint64(11)) * 2.0**-53  # in [0, 1)
        ends = np.cumsum(self._probabilities[order])
        hit = np.searchsorted(ends, first + np.arange(self._size), side="right")
        ids = np.sort(order[np.minimum(hit, V - 1)])  # the sum is rounded
        columns = np.full(V, -1, np.int64)
        columns[ids] = np.arange(len(ids))
        log_weights = -np.log(self._probabilities[ids]).astype(np.float32)
        return VocabSample(*(torch.from_numpy(array).to(device) for array in (ids, log_weights, columns)))


def inclusion_probabilities(counts: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.float64]:
    """Return min(1, c (count + 1)^FREQUENCY_POWER) of each id, c such that `size` are drawn: (V,) -> (V,)."""
    weights = (counts + 1.0) ** FREQUENCY_POWER
    low, high = 0.0, size / weights.min()  # with which all probabilities are 1
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if np.minimum(1.0, middle * weights).sum() < size else (low, middle)
    probabilities: npt.NDArray[np.float64] = np.minimum(1.0, high * weights)
    return probabilities


class _SampledNLLSum(torch.autograd.Function):
    """The loss with its gradient in one matrix of N x S, as `nll_sum` has it in one of N x V."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, ids: Tensor, log_weights: Tensor, columns: Tensor
    ) -> Tensor:
        """Return the loss: (N, C), (V, C), (N,), and a VocabSample -> scalar."""
        rows, own = weight[ids], weight[targets].to(hidden.dtype)  # (S, C), (N, C)
        rows = rows.to(hidden.dtype)
        wide = torch.promote_types(hidden.dtype, torch.float32)
        logits = (hidden @ rows.T).to(wide).add_(log_weights)  # (N, S)
        of_targets = (hidden * own).sum(1, dtype=wide)  # (N,)
        drawn = columns[targets]
        tokens = torch.nonzero(drawn >= 0)[:, 0]
        logits[tokens, drawn[tokens]] = NEVER  # the target counts once, as itself
        largest = logits.amax(1)
        among_others = torch.softmax(logits, dim=1, out=logits)  # faster than exp and sum
        log_Z_others = largest - among_others.amax(1).log()
        log_Z = torch.logaddexp(log_Z_others, of_targets)
        p_others, p_target = (log_Z_others - log_Z).exp(), (of_targets - log_Z).exp()  # (N,) each
        ctx.save_for_backward(hidden, targets, ids, rows, own, among_others, p_others, p_target)
        ctx.weight = weight.shape, weight.dtype
        return (log_Z - of_targets).sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of hidden and weight, once: it overwrites the probabilities."""
        hidden, targets, ids, rows, own, among_others, p_others, p_target = ctx.saved_tensors
        grad_logits = among_others.mul_((gradient * p_others)[:, None]).to(hidden.dtype)  # (N, S)
        grad_target = ((p_target - 1.0) * gradient)[:, None]  # (N, 1)
        grad_hidden = torch.addmm((grad_target * own).to(hidden.dtype), grad_logits, rows)
        shape, dtype = ctx.weight
        grad_weight = torch.zeros(shape, dtype=dtype, device=hidden.device)
        grad_weight.index_copy_(0, ids, (grad_logits.T @ hidden).to(dtype))
        grad_weight.index_add_(0, targets, (grad_target * hidden).to(dtype))
        return grad_hidden, grad_weight, None, None, None, None


def sampled_nll_sum(hidden: Tensor, weight: Tensor, targets: Tensor, sample: VocabSample) -> Tensor:
    """Estimate the sum of -log p(target), in nats: (B, T, C), the head's (V, C), (B, T) -> scalar, at least fp32.

    Under autocast the products are in its type. The gradient can be taken once.
    """
    device = hidden.device.type
    if torch.is_autocast_enabled(device):
        hidden = hidden.to(torch.get_autocast_dtype(device))
    with torch.autocast(device, enabled=False):
        loss: Tensor = _SampledNLLSum.apply(  # type: ignore[no-untyped-call]
            hidden.flatten(0, 1), weight, targets.flatten(), sample.ids, sample.log_weights, sample.columns
        )
    return loss
