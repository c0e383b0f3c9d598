"""Decoding: several samples written together, token by token, and the text that each becomes.

Shapes: B samples, V = vocab_size.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import torch

from gptlite.inference.engine import DecodingBatch, rows_at_once
from gptlite.inference.filters import Flags, Logits
from gptlite.inference.sampling import SamplingParams, choose
from gptlite.inference.stop_strings import TextStream
from gptlite.model.gpt import GPT
from gptlite.seeds import mix
from gptlite.tokenizers.base import Tokenizer

# Why a text ended: max_new_tokens, end-of-text, one of stop_tokens, one of the stop texts.
FinishReason: TypeAlias = Literal["length", "end of text", "stop token", "stop text"]


@dataclass(frozen=True)
class Step:
    """One token more of every sample that still goes on; what they are drawn from, before any filter: (B, V)."""

    samples: Sequence[int]  # which sample each row is
    tokens: Sequence[int]
    logits: Logits

    def logprobs(self) -> list[float]:
        """log p(token) of the model itself, in nats, one a row."""
        shifted = self.logits - self.logits.max(-1, keepdims=True)
        chosen = shifted[np.arange(len(shifted)), self.tokens]
        of_each: list[float] = (chosen - np.log(np.exp(shifted).sum(-1))).tolist()
        return of_each

    def top_logprobs(self, n: int) -> list[list[tuple[int, float]]]:
        """Of each row the n likeliest tokens with their log p, the likeliest first."""
        logprobs, ids = torch.log_softmax(torch.from_numpy(self.logits), dim=-1).topk(min(n, self.logits.shape[-1]))
        return [list(zip(*row, strict=True)) for row in zip(ids.tolist(), logprobs.tolist(), strict=True)]


def decode(
    model: GPT,
    prompts: Sequence[Sequence[int]],
    how: SamplingParams,
    *,
    rngs: Sequence[np.random.Generator],
    suppressed: Flags,
    active: set[int],
) -> Iterator[Step]:
    """What follows the prompts (at least one id each), decoded together, up to max_new_tokens.

    going: the samples that go on, all at first; whoever takes the steps removes those that have ended.
    """
    contexts = DecodingBatch(model, prompts, how.max_new_tokens - 1)
    samples = list(range(len(prompts)))
    seen = seen_in(prompts, suppressed.size) if how.repetition_penalty is not None else None
    for left in range(how.max_new_tokens - 1, -1, -1):
        logits = contexts.logits.numpy()
        tokens = choose(np.where(suppressed, -math.inf, logits), how, [rngs[sample] for sample in samples], seen)
        yield Step(samples, tokens, logits)
        rows = [row for row, sample in enumerate(samples) if sample in active]
        if not rows or not left:
            return
        if len(rows) < len(samples):
            contexts.select(rows)
            samples, tokens = [samples[row] for row in rows], [tokens[row] for row in rows]
            seen = seen[rows] if seen is not None else None
        contexts.read(tokens)
        if seen is not None:
            seen[range(len(tokens)), tokens] = True


def seen_in(texts: Sequence[Sequence[int]], vocab_size: int) -> Flags:
    """True for the tokens that stand in each text: (B, V)."""
    seen = np.zeros((len(texts), vocab_size), np.bool_)
    for row, ids in zip(seen, texts, strict=True):
        row[list(ids)] = True
    return seen


class Sample:
    """A text in the making: iterating over it gives its pieces as they come; the other facts are complete after that.

    A stop text cuts the text, not the tokens: the last of these may reach beyond its end.
    """

    def __init__(self, stream: TextStream, ends: Mapping[int, FinishReason], more: Callable[[], bool]) -> None:
        """more: writes one more token of every sample of a batch; False if there is nothing left to write."""
        self.tokens: list[int] = []
        self.logprobs: list[float] = []  # of the tokens, by the model itself, in nats
        self.top_logprobs: list[list[tuple[int, float]]] = []  # at each token, if asked for
        self.text = ""
        self.reason: FinishReason | None = None  # why it ended
        self._stream, self._ends, self._more = stream, ends, more
        self._waiting: deque[str] = deque()

    def __iter__(self) -> Iterator[str]:
        while True:
            while self._waiting:
                yield self._waiting.popleft()
            if self.reason is not None or not self._more():
                break
        self._take(self._stream.finish())
        self.reason = self.reason or ("stop text" if self._stream.stopped else "length")
        yield from self._waiting
        self._waiting.clear()

    def whole(self) -> Sample:
        """Itself, written to the end."""
        for _ in self:
            pass
        return self

    def add(self, token: int, logprob: float, top_logprobs: list[tuple[int, float]] | None) -> None:
        """One token more, or the end."""
        self.reason = self._ends.get(token)
        if self.reason is not None:
            return
        self.tokens.append(token)
        self.logprobs.append(logprob)
        if top_logprobs is not None:
            self.top_logprobs.append(top_logprobs)
        self._take(self._stream.feed(token))
        if self._stream.stopped:
            self.reason = "stop text"

    def _take(self, piece: str) -> None:
        if piece:
            self.text += piece
            self._waiting.append(piece)


def write(
    model: GPT,
    prompts: Sequence[Sequence[int]],
    how: SamplingParams,
    *,
    seeds: Sequence[int],
    suppressed: Flags,
    tokenizer: Tokenizer,
    n_top_logprobs: int = 0,
) -> Iterator[Sample]:
    """What the model adds to each prompt, in order. As many as fit are decoded together.

    What comes of later samples while an earlier one is read waits for its turn. n_likeliest: how many of the likeliest
    tokens each sample notes at each of its tokens.
    """
    n = rows_at_once(model.cfg)
    for first in range(0, len(prompts), n):
        part = slice(first, first + n)
        active = set(range(len(prompts[part])))
        rngs = [np.random.default_rng(seed) for seed in seeds[part]]
        steps = decode(model, prompts[part], how, rngs=rngs, suppressed=suppressed, active=active)
        yield from _written(steps, active, how, tokenizer, n_top_logprobs)


def _written(
    steps: Iterator[Step], active: set[int], how: SamplingParams, tokenizer: Tokenizer, n_top_logprobs: int
) -> list[Sample]:
    """The samples that are decoded together; whichever is iterated over takes steps of all."""

    def more() -> bool:
        step = next(steps, None)
        if step is None:
            return False
        top_logprobs = step.top_logprobs(n_top_logprobs) if n_top_logprobs else [None] * len(step.samples)
        for number, token, logprob, rivals in zip(
            step.samples, step.tokens, step.logprobs(), top_logprobs, strict=True
        ):
            samples[number].add(token, logprob, rivals)
            if samples[number].reason is not None:
                active.remove(number)
        return True

    ends = ends_of(tokenizer, how.stop_tokens)
    samples = [Sample(TextStream(tokenizer, how.stop), ends, more) for _ in active]
    return samples


def ends_of(tokenizer: Tokenizer, stop_tokens: Sequence[int]) -> dict[int, FinishReason]:
    """The tokens that end a text, which are no part of it, each with the reason."""
    return {**dict.fromkeys(stop_tokens, "stop token"), tokenizer.eot_id: "end of text"}


def sample_seed(seed: int, i: int) -> int:
    """The generator seed of sample `i`: samples of one call differ, whatever their number."""
    return mix(seed, i)
