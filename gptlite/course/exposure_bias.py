"""Exposure bias: in training a model reads true text, in use its own; how well does it predict after its own?

Text that a model wrote leads elsewhere than the true text, so true text is less likely after it, however good the model
is. True text from another place is measured, too: it leads elsewhere as well, but was not written by the model.

Shapes: N windows, T = block_size, k = T // 2 tokens of prefix, n = T - k + 1 tokens after it.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from gptlite.config.training import SampleSection
from gptlite.data.dataset.tokens import Tokens
from gptlite.errors import ConfigError, DataError
from gptlite.inference.engine import rows_at_once
from gptlite.inference.generate import decode
from gptlite.inference.language_model import SCORE_BATCH_SIZE, LanguageModel
from gptlite.inference.score import compute_nats
from gptlite.seeds import mix

MOST_WINDOWS = 256
TEMPERATURE = 1.0  # the distribution that the model has learned
SEED = 0

Floats: TypeAlias = npt.NDArray[np.float64]
Integers: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class PrefixScores:
    """log p of the tokens after a prefix of k tokens, in nats, for three kinds of prefix: (N, n) each."""

    prefix: int  # k
    true: Floats  # the prefix that the text has there
    own: Floats  # its first token, and then what the model wrote
    other: Floats  # the prefix of another window


def measure_exposure_bias(model: LanguageModel, tokens: Tokens, *, batch_size: int = SCORE_BATCH_SIZE) -> PrefixScores:
    """Score windows from all over a text, at most MOST_WINDOWS. As in training, they may cross documents.

    ConfigError for a context of fewer than 4 tokens and for a model without a mask, DataError for a text of fewer than
    two windows.
    """
    model.require_mask()
    context = model.gpt.cfg.block_size
    if context < 4:
        raise ConfigError(f"the model reads {context} tokens. At least 4 are needed: a prefix of 2, and text after it.")
    windows, k = read_windows(tokens, context + 1), context // 2
    prefixes = (
        windows[:, :k],
        np.concatenate([windows[:, :1], write(model, windows[:, 0].tolist(), k - 1)], axis=1),
        np.roll(windows[:, :k], len(windows) // 2, axis=0),
    )
    texts = (np.concatenate([prefix, windows[:, k:]], axis=1) for prefix in prefixes)
    return PrefixScores(k, *(logprobs_after(model, text, k, batch_size) for text in texts))


def read_windows(tokens: Tokens, length: int) -> Integers:
    """Return at most MOST_WINDOWS windows at equal distances, none of which overlap: (N, length)."""
    n = min(MOST_WINDOWS, tokens.n_tokens // length)
    if n < 2:
        raise DataError(
            f"the text has {tokens.n_tokens:,} tokens. At least {2 * length:,} are needed, two windows of {length}."
        )
    starts = np.linspace(0, tokens.n_tokens - length, n).astype(np.int64).tolist()
    return np.stack([tokens.read(start, length) for start in starts]).astype(np.int64)


def write(model: LanguageModel, firsts: list[int], n_tokens: int) -> Integers:
    """Let the model write after each of these tokens: (N, n_tokens). Where a document ends, another begins."""
    params = SampleSection(max_new_tokens=n_tokens, temperature=TEMPERATURE)
    prompts, written = [[token] for token in firsts], list[Integers]()
    size = rows_at_once(model.gpt.cfg)
    for first in range(0, len(prompts), size):
        part = prompts[first : first + size]
        rngs = [np.random.default_rng(mix(SEED, first + i)) for i in range(len(part))]
        steps = decode(model.gpt, part, params, rngs=rngs, suppressed=model.suppressed, active=set(range(len(part))))
        written.append(np.array([step.tokens for step in steps]).T)
    return np.concatenate(written)


def logprobs_after(model: LanguageModel, texts: Integers, k: int, batch_size: int) -> Floats:
    """Return log p of the tokens after the first k of each text: (N, T + 1) -> (N, T + 1 - k)."""
    batches = ((part[:, :-1], part[:, 1:]) for part in torch.split(torch.from_numpy(texts), batch_size))
    return np.concatenate([-compute_nats(model.gpt, batch, model.compute)[:, k - 1 :].numpy() for batch in batches])


def summarize(scores: PrefixScores) -> list[dict[str, Any]]:
    """Return means over spans of positions after the prefix, and over all of them in the last row.

    Each row has the `tokens` that it is about; the mean log p after the prefixes `true`, `own` and `other`; and the
    differences `own_minus_true` and `own_minus_other`, each with its `mean` over windows and the `margin` of the 95%
    interval around it.
    """
    rows = []
    length = scores.true.shape[1]
    for first, last in [*spans(length), (1, length)]:
        true, own, other = (part[:, first - 1 : last] for part in (scores.true, scores.own, scores.other))
        rows.append(
            {
                "tokens": "all" if last - first + 1 == length else f"{first} - {last}" if first < last else str(first),
                **{name: float(part.mean()) for name, part in (("true", true), ("own", own), ("other", other))},
                "own_minus_true": difference(own, true),
                "own_minus_other": difference(own, other),
            }
        )
    return rows


def difference(a: Floats, b: Floats) -> dict[str, float]:
    """Return how much larger a is than b by window, with a 95% margin: (N, any number), at least two windows."""
    by_window = (a - b).mean(-1)
    margin = 1.96 * float(by_window.std(ddof=1)) / math.sqrt(len(by_window))
    return {"mean": float(by_window.mean()), "margin": margin}


def spans(length: int) -> list[tuple[int, int]]:
    """Return the first and last positions of the rows of a table, each about twice as long as the one before.

    >>> spans(8), spans(33)[-2:]
    ([(1, 1), (2, 2), (3, 4), (5, 8)], [(9, 16), (17, 33)])
    """
    edges = [0, *(2**i for i in range(length.bit_length()) if 3 * 2**i <= 2 * length), length]
    return [(before + 1, edge) for before, edge in itertools.pairwise(edges)]
