"""Choosing the next token of several samples at once. Shapes: B samples, V = vocab_size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gptlite.config.sampling import SampleSection
from gptlite.errors import ConfigError
from gptlite.inference.filters import (
    Flags,
    Logits,
    keep_min_p,
    keep_top_k,
    keep_top_p,
    penalise_repetition,
    temper,
    weights_of,
)
from gptlite.tokenizers.base import Tokenizer


@dataclass(frozen=True)
class SamplingParams:
    """How the next token is chosen, and when to stop."""

    max_new_tokens: int = 200
    temperature: float = 0.8  # 0: the likeliest token
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    stop: tuple[str, ...] = ()
    stop_tokens: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        penalty = self.repetition_penalty
        check(
            self,
            max_new_tokens=(self.max_new_tokens >= 1, "a whole number >= 1"),
            temperature=(0 <= self.temperature < math.inf, "a number >= 0"),
            top_k=(self.top_k is None or self.top_k >= 1, "a whole number >= 1, or None"),
            top_p=(self.top_p is None or 0 < self.top_p <= 1, "a number > 0 and <= 1, or None"),
            min_p=(self.min_p is None or 0 < self.min_p <= 1, "a number > 0 and <= 1, or None"),
            repetition_penalty=(penalty is None or 0 < penalty < math.inf, "a number > 0, or None"),
            stop=("" not in self.stop, "texts that are not empty"),
        )

    @classmethod
    def of(cls, section: SampleSection) -> SamplingParams:
        """What a config asks for."""
        return cls(
            section.max_new_tokens,
            section.temperature,
            section.top_k,
            section.top_p,
            section.min_p,
            section.repetition_penalty,
            tuple(section.stop),
            tuple(section.stop_tokens),
        )


def check(how: object, **accepted: tuple[bool, str]) -> None:
    """ConfigError for every attribute of `how` that does not fit, each with the words of what does."""
    problems = [f"{key} = {getattr(how, key)}: {words}" for key, (fits, words) in accepted.items() if not fits]
    if problems:
        raise ConfigError(problems)


def choose(
    logits: Logits, how: SamplingParams, rngs: Sequence[np.random.Generator], seen: Flags | None = None
) -> list[int]:
    """The next token of each row: repetition penalty, temperature, top-k, top-p, min-p, then a draw.

    Temperature 0 is greedy: the likeliest after the penalty. logits: (B, V). seen: (B, V), True for tokens in the text
    so far, which the penalty needs. What a row draws depends on that row and its generator alone.
    """
    if how.repetition_penalty is not None:
        assert seen is not None, "the penalty needs the tokens so far"
        logits = penalise_repetition(logits, seen, how.repetition_penalty)
    if how.temperature == 0:
        greedy: list[int] = logits.argmax(-1).tolist()
        return greedy
    logits = temper(logits, how.temperature)
    if how.top_k is not None:
        logits = keep_top_k(logits, how.top_k)
    if how.top_p is not None:
        logits = keep_top_p(logits, how.top_p)
    if how.min_p is not None:
        logits = keep_min_p(logits, how.min_p)
    return draw(logits, rngs)


def draw(logits: Logits, rngs: Sequence[np.random.Generator]) -> list[int]:
    """An id of each row, drawn from its softmax with one number of its own generator: (B, V) -> B of them.

    The first id whose cumulative weight passes a uniform share of the whole: never one of weight 0.
    """
    cumulative = weights_of(logits).cumsum(-1)
    shares = (rng.random() for rng in rngs)
    return [int(row.searchsorted(share * row[-1], side="right")) for row, share in zip(cumulative, shares, strict=True)]


def suppressed_ids(tokenizer: Tokenizer, *, ends: bool) -> Flags:
    """True for ids that must not be chosen: those that no text produces: (V,).

    End-of-text counts among them unless the model has learned from texts that end.
    """
    suppressed = np.array([not piece for piece in tokenizer.token_bytes()])
    suppressed[tokenizer.eot_id] = not ends
    return suppressed
