"""From logits to the next token: filters in the order in which they apply, then the draw.

Shapes: B samples, V = vocab_size. Each filter is a pure function of logits, (B, V) -> (B, V), that sets removed tokens
to -inf and never removes the most likely one. A row that is -inf throughout stays as it is. They use numpy: on arrays
this small a call of torch takes five times as long, and dozens of calls would cost much of the model's time per token.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from gptlite.config.training import SampleSection

Logits: TypeAlias = npt.NDArray[np.floating[Any]]
TokenFlags: TypeAlias = npt.NDArray[np.bool_]

_FIRST_SORTED = 256
_LOWEST = float(np.finfo(np.float32).min)


def choose(
    logits: Logits, params: SampleSection, rngs: Sequence[np.random.Generator], seen: TokenFlags | None = None
) -> list[int]:
    """Choose the next token of each row: repetition penalty, temperature, top-k, top-p, min-p, then a draw.

    Temperature 0 is greedy: the most likely token after the penalty. logits: (B, V). seen: True for the tokens of the
    text so far, which the penalty needs: (B, V). What a row draws depends on that row and its generator alone.
    """
    if params.repetition_penalty is not None:
        assert seen is not None, "the penalty needs the tokens so far"
        logits = penalise_repetition(logits, seen, params.repetition_penalty)
    if params.temperature == 0:
        greedy: list[int] = logits.argmax(-1).tolist()
        return greedy
    logits = apply_temperature(logits, params.temperature)
    if params.top_k is not None:
        logits = keep_top_k(logits, params.top_k)
    if params.top_p is not None:
        logits = keep_top_p(logits, params.top_p)
    if params.min_p is not None:
        logits = keep_min_p(logits, params.min_p)
    return draw(logits, rngs)


def penalise_repetition(logits: Logits, seen: TokenFlags, penalty: float) -> Logits:
    """Divide positive logits of seen tokens by the penalty, and multiply negative ones by it. seen: (B, V).

    Keskar et al. 2019 (arXiv 1909.05858), section 4.1; as transformers does.
    """
    return np.where(seen, np.where(logits > 0, logits / penalty, logits * penalty), logits)


def apply_temperature(logits: Logits, temperature: float) -> Logits:
    """Divide by a temperature > 0, in fp64. The largest of each row is first shifted to 0.

    So no temperature, however low, makes it infinite.
    """
    return np.subtract(logits, _finite_max(logits), dtype=np.float64) / temperature


def keep_top_k(logits: Logits, k: int) -> Logits:
    """Keep the k most likely tokens, or all if there are fewer. Of equal ones the lower ids are kept."""
    k = min(k, logits.shape[-1])
    return _keep(logits, _largest(logits, k)[:, :1], np.full((len(logits), 1), k))


def keep_top_p(logits: Logits, p: float) -> Logits:
    """Keep the fewest most likely tokens that together reach probability p (Holtzman et al. 2019, arXiv 1904.09751).

    Of equal ones the lower ids are kept.
    """
    weights = exp_weights(logits)
    total = weights.sum(-1, keepdims=True)
    k, vocab_size = _FIRST_SORTED, logits.shape[-1]
    while True:
        # Sorting all of a large vocabulary would take longer than the model, so more is sorted only where needed.
        top = np.sort(_largest(weights, k) if k < vocab_size else weights)[:, ::-1]
        before = top.cumsum(-1) - top
        n = np.maximum(1, (before < p * total).sum(-1, keepdims=True))
        if k >= vocab_size or (n < k).all():
            break
        k *= 16
    threshold = top[np.arange(len(top))[:, None], n - 1]
    return _keep(logits, threshold, n, by=weights)


def keep_min_p(logits: Logits, p: float) -> Logits:
    """Keep tokens with at least p times the probability of the most likely (Nguyen et al. 2024, arXiv 2407.01082)."""
    return np.where(logits < logits.max(-1, keepdims=True) + math.log(p), -math.inf, logits)


def draw(logits: Logits, rngs: Sequence[np.random.Generator]) -> list[int]:
    """Draw a token of each row from its softmax, with one number of the row's own generator: (B, V) -> B ids.

    The first id whose cumulative weight exceeds u times the total is drawn, so never one of weight 0.
    """
    cumulative = exp_weights(logits).cumsum(-1)
    uniform = (rng.random() for rng in rngs)
    return [int(row.searchsorted(u * row[-1], side="right")) for row, u in zip(cumulative, uniform, strict=True)]


def exp_weights(logits: Logits) -> Logits:
    """Return the numerator of the softmax, the largest scaled to 1; 0 throughout where a row is -inf throughout."""
    return np.exp(logits - _finite_max(logits))


def _finite_max(logits: Logits) -> Logits:
    """Return the largest of each row, but never -inf, so that it can be subtracted: (B, 1)."""
    largest: Logits = np.maximum(logits.max(-1, keepdims=True), _LOWEST)
    return largest


def _largest(numbers: Logits, k: int) -> Logits:
    """Return the k largest of each row, the smallest of them first, the others in any order: (B, k)."""
    at = numbers.shape[-1] - k
    return np.partition(numbers, at, axis=-1)[:, at:]


def _keep(logits: Logits, threshold: Logits, n: npt.NDArray[np.intp], by: Logits | None = None) -> Logits:
    """Keep n tokens of each row: those above the threshold, then the lowest ids equal to it. threshold, n: (B, 1).

    by: the numbers to compare; None: the logits.
    """
    by = logits if by is None else by
    kept = by >= threshold
    if np.count_nonzero(kept) != n.sum():  # ties
        equal = by == threshold
        n_equal = n - (by > threshold).sum(-1, keepdims=True)
        kept &= ~equal | (equal.cumsum(-1) <= n_equal)
    return np.where(kept, logits, -math.inf)
