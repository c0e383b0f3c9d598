"""What reshapes logits before a token is drawn: each a pure function of them, (B, V) -> (B, V).

`choose` applies them in the order in which they stand here. A token left out becomes -inf; the likeliest always stays.
A row that is -inf throughout stays as it is.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

_FIRST_SORTED = 256


def penalise_repetition(logits: Tensor, seen: Tensor, penalty: float) -> Tensor:
    """Tokens that stand in the text already become less likely: positive logits / penalty, negative x penalty.

    Keskar et al. 2019 (arXiv 1909.05858), section 4.1; as transformers does. seen: (B, V) bool.
    """
    return torch.where(seen, torch.where(logits > 0, logits / penalty, logits * penalty), logits)


def temper(logits: Tensor, temperature: float) -> Tensor:
    """Divided by a temperature > 0, in fp64: below 1 the likely become likelier. The largest becomes 0.

    It does so first, so that no temperature, however low, makes it infinite.
    """
    largest = logits.amax(-1, keepdim=True)
    return (logits - largest.masked_fill(largest == -math.inf, 0.0)).double() / temperature


def keep_top_k(logits: Tensor, k: int) -> Tensor:
    """Only the k likeliest stay, all of them where there are fewer. Ties keep the lower ids."""
    k = min(k, logits.size(-1))
    return _keep(logits, logits.topk(k).values[:, -1:], k)


def keep_top_p(logits: Tensor, p: float) -> Tensor:
    """The fewest likeliest that together reach probability p stay (Holtzman et al. 2019, arXiv 1904.09751).

    Ties keep the lower ids.
    """
    total = logits.logsumexp(-1, keepdim=True)
    k, vocab_size = _FIRST_SORTED, logits.size(-1)
    while True:
        # Sorting all of a large vocabulary would take longer than the model: more only where these do not suffice.
        top = logits.topk(min(k, vocab_size)).values
        probabilities = (top - total).exp()
        before = probabilities.cumsum(-1) - probabilities
        n = ((before < p) & (probabilities > 0)).sum(-1, keepdim=True).clamp(min=1)
        if k >= vocab_size or bool((n < k).all()):
            return _keep(logits, top.gather(-1, n - 1), n)
        k *= 16


def keep_min_p(logits: Tensor, p: float) -> Tensor:
    """What has at least p times the probability of the likeliest stays (Nguyen et al. 2024, arXiv 2407.01082)."""
    return logits.masked_fill(logits < logits.amax(-1, keepdim=True) + math.log(p), -math.inf)


def _keep(logits: Tensor, least: Tensor, n: Tensor | int) -> Tensor:
    """What is above `least` stays, and of what equals it the lower ids, `n` in all: (B, V), (B, 1), (B, 1)."""
    above, equal = logits > least, logits == least
    room = n - above.sum(-1, keepdim=True)
    return logits.masked_fill(~(above | (equal & (equal.cumsum(-1) <= room))), -math.inf)
