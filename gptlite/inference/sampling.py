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

from gptlite.config.sampling import SampleSection
from gptlite.tokenizers.base import Tokenizer

Logits: TypeAlias = npt.NDArray[np.floating[Any]]
TokenFlags: TypeAlias = npt.NDArray[np.bool_]

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
    return _keep_first(logits, _descending(logits), np.full((len(logits), 1), k))


def keep_top_p(logits: Logits, p: float) -> Logits:
    """Keep the fewest most likely tokens that together reach probability p (Holtzman et al. 2019, arXiv 1904.09751).

    Of equal ones the lower ids are kept.
    """
    weights = exp_weights(logits)
    order = _descending(weights)
    top = np.take_along_axis(weights, order, axis=-1)
    before = top.cumsum(-1) - top
    n = np.maximum(1, (before < p * weights.sum(-1, keepdims=True)).sum(-1, keepdims=True))
    return _keep_first(logits, order, n)


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
    """The numerator of the softmax, scaled so that the largest is 1; 0 throughout where a row is -inf throughout."""
    return np.exp(logits - _finite_max(logits))


def _finite_max(logits: Logits) -> Logits:
    """The largest of each row, but never -inf, so that it can be subtracted: (B, 1)."""
    largest: Logits = np.maximum(logits.max(-1, keepdims=True), _LOWEST)
    return largest


def _descending(numbers: Logits) -> npt.NDArray[np.intp]:
    """The ids of each row from the largest number to the smallest, of equal ones the lower id first: (B, V)."""
    return np.argsort(-numbers, axis=-1, kind="stable")


def _keep_first(logits: Logits, order: npt.NDArray[np.intp], n: npt.NDArray[np.intp]) -> Logits:
    """Keep the first n ids of each row of `order`: (B, V), (B, V), (B, 1)."""
    kept = np.zeros(logits.shape, np.bool_)
    np.put_along_axis(kept, order, np.arange(logits.shape[-1]) < n, axis=-1)
    return np.where(kept, logits, -math.inf)


def suppressed_ids(tokenizer: Tokenizer, *, knows_end_of_text: bool) -> TokenFlags:
    """True for ids that must not be generated: (V,). Those that no text produces, and end-of-text if never trained."""
    suppressed = np.array([not piece for piece in tokenizer.token_bytes()])
    suppressed[tokenizer.eot_id] = not knows_end_of_text
    return suppressed
