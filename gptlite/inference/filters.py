"""What reshapes logits before a token is drawn: each a pure function of them, (B, V) -> (B, V).

`choose` applies them in the order in which they stand here. A token left out becomes -inf; the likeliest always stays.
A row that is -inf throughout stays as it is. They are numpy's: on so few numbers a call of torch takes five times as
long, and dozens of them a good part of what the model takes for a token.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Logits: TypeAlias = npt.NDArray[np.floating[Any]]
Flags: TypeAlias = npt.NDArray[np.bool_]

_FIRST_SORTED = 256
_LOWEST = float(np.finfo(np.float32).min)


def penalise_repetition(logits: Logits, seen: Flags, penalty: float) -> Logits:
    """Tokens that stand in the text already become less likely: positive logits / penalty, negative x penalty.

    Keskar et al. 2019 (arXiv 1909.05858), section 4.1; as transformers does. seen: (B, V).
    """
    return np.where(seen, np.where(logits > 0, logits / penalty, logits * penalty), logits)


def temper(logits: Logits, temperature: float) -> Logits:
    """Divided by a temperature > 0, in fp64: below 1 the likely become likelier. The largest becomes 0.

    It does so first, so that no temperature, however low, makes it infinite.
    """
    return np.subtract(logits, _largest_of(logits), dtype=np.float64) / temperature


def keep_top_k(logits: Logits, k: int) -> Logits:
    """Only the k likeliest stay, all of them where there are fewer. Ties keep the lower ids."""
    k = min(k, logits.shape[-1])
    return _keep(logits, _largest(logits, k)[:, :1], np.full((len(logits), 1), k))


def keep_top_p(logits: Logits, p: float) -> Logits:
    """The fewest likeliest that together reach probability p stay (Holtzman et al. 2019, arXiv 1904.09751).

    Ties keep the lower ids.
    """
    weights = weights_of(logits)
    total = weights.sum(-1, keepdims=True)
    k, vocab_size = _FIRST_SORTED, logits.shape[-1]
    while True:
        # Sorting all of a large vocabulary would take longer than the model: more only where these do not suffice.
        top = np.sort(_largest(weights, k) if k < vocab_size else weights)[:, ::-1]
        before = top.cumsum(-1) - top
        n = np.maximum(1, (before < p * total).sum(-1, keepdims=True))
        if k >= vocab_size or (n < k).all():
            break
        k *= 16
    least = top[np.arange(len(top))[:, None], n - 1]
    return _keep(logits, least, n, by=weights)


def keep_min_p(logits: Logits, p: float) -> Logits:
    """What has at least p times the probability of the likeliest stays (Nguyen et al. 2024, arXiv 2407.01082)."""
    return np.where(logits < logits.max(-1, keepdims=True) + math.log(p), -math.inf, logits)


def weights_of(logits: Logits) -> Logits:
    """The softmax but for its denominator: the likeliest weighs 1, and nothing where all is -inf."""
    return np.exp(logits - _largest_of(logits))


def _largest_of(logits: Logits) -> Logits:
    """What to subtract of each row, so that its largest becomes 0 and -inf stays -inf: (B, 1)."""
    largest: Logits = np.maximum(logits.max(-1, keepdims=True), _LOWEST)
    return largest


def _largest(numbers: Logits, k: int) -> Logits:
    """The k largest of each row, the least of them first, the others in any order: (B, k)."""
    at = numbers.shape[-1] - k
    return np.partition(numbers, at, axis=-1)[:, at:]


def _keep(logits: Logits, least: Logits, n: npt.NDArray[np.intp], by: Logits | None = None) -> Logits:
    """What is above `least` stays, and of what equals it the lower ids, `n` in all: (B, V), (B, 1), (B, 1).

    by: what is compared, the logits if nothing else.
    """
    by = logits if by is None else by
    kept = by >= least
    if np.count_nonzero(kept) != n.sum():  # ties
        equal = by == least
        room = n - (by > least).sum(-1, keepdims=True)
        kept &= ~equal | (equal.cumsum(-1) <= room)
    return np.where(kept, logits, -math.inf)
