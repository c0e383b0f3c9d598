"""Sampling: several samples are decoded together, token by token, and each becomes text as it is read.

Shapes: B samples, V = vocab_size.
"""

from __future__ import annotations

import codecs
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import torch

from gptlite.config.training import SampleSection
from gptlite.inference.engine import DecodingBatch, rows_at_once
from gptlite.inference.sampling import Logits, TokenFlags, choose
from gptlite.model.gpt import GPT
from gptlite.tokenizers.base import Tokenizer

# Why a text ended: at max_new_tokens, end-of-text, one of stop_tokens, or one of the stop texts.
FinishReason: TypeAlias = Literal["length", "end of text", "stop token", "stop text"]


@dataclass(frozen=True)
class Step:
    """One new token of each active sample, and the model's logits before any filter: (B, V)."""

    samples: Sequence[int]  # the number of the sample in each row
    tokens: Sequence[int]
    logits: Logits

    def logprobs(self) -> list[float]:
        """Return log p(token) of each row under the model itself, in nats."""
        chosen: list[float] = self._log_softmax()[np.arange(len(self.logits)), self.tokens].tolist()
        return chosen

    def top_logprobs(self, n: int) -> list[list[tuple[int, float]]]:
        """Return the n most likely tokens of each row with their log p as in `logprobs`, the most likely first."""
        logprobs, ids = torch.from_numpy(self._log_softmax()).topk(min(n, self.logits.shape[-1]))
        return [list(zip(*row, strict=True)) for row in zip(ids.tolist(), logprobs.tolist(), strict=True)]

    def _log_softmax(self) -> Logits:
        shifted = self.logits - self.logits.max(-1, keepdims=True)
        logprobs: Logits = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
        return logprobs


def decode(
    model: GPT,
    prompts: Sequence[Sequence[int]],
    params: SampleSection,
    *,
    rngs: Sequence[np.random.Generator],
    suppressed: TokenFlags,
    active: set[int],
) -> Iterator[Step]:
    """Continue the prompts (at least one id each) together, by up to max_new_tokens tokens.

    active: indices of the unfinished samples, initially all; the caller removes those that have ended.
    """
    batch = DecodingBatch(model, prompts, params.max_new_tokens - 1)
    samples = list(range(len(prompts)))
    seen = np.zeros((len(prompts), suppressed.size), np.bool_)  # the tokens of each text: (B, V)
    for row_of_text, ids in zip(seen, prompts, strict=True):
        row_of_text[list(ids)] = True
    for n_left in range(params.max_new_tokens - 1, -1, -1):
        logits = batch.logits.numpy()
        tokens = choose(np.where(suppressed, -math.inf, logits), params, [rngs[sample] for sample in samples], seen)
        yield Step(samples, tokens, logits)
        rows = [row for row, sample in enumerate(samples) if sample in active]
        if not rows or not n_left:
            return
        if len(rows) < len(samples):
            batch.select(rows)
            samples, tokens = [samples[row] for row in rows], [tokens[row] for row in rows]
            seen = seen[rows]
        batch.read(tokens)
        seen[range(len(tokens)), tokens] = True


class TextStream:
    """The text of one sample, token by token: only whole characters, and nothing from the first stop text on.

    Text that may be the beginning of a stop text is held back until it is known not to be. Without stop texts, all
    that is returned joins to what `Tokenizer.decode` gives.
    """

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str] = ()) -> None:
        self._pieces, self._stop = tokenizer.token_bytes(), stop
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self.stopped = False  # by a stop text

    def feed(self, token: int) -> str:
        """Add a token and return the text that is now certain; "" after a stop text."""
        return self._release(self._utf8.decode(self._pieces[token]), last=False)

    def finish(self) -> str:
        """End the stream and return the text that was held back."""
        return self._release(self._utf8.decode(b"", final=True), last=True)

    def _release(self, text: str, *, last: bool) -> str:
        if self.stopped:
            return ""
        held = self._held + text
        cut = min((at for s in self._stop if (at := held.find(s)) >= 0), default=len(held))
        # Even before a complete stop text, another one may have begun that is not complete yet.
        certain = len(held) if last else len(held) - _length_of_stop_prefix(held, self._stop)
        ready = min(cut, certain)
        self.stopped = ready == cut < len(held)
        self._held = held[ready:]
        return held[:ready]


def _length_of_stop_prefix(text: str, stop: Sequence[str]) -> int:
    """Length of the longest suffix of the text that is a proper prefix of a stop text."""
    longest = max((len(s) for s in stop), default=0)
    for size in range(min(len(text), longest - 1), 0, -1):
        if any(s.startswith(text[-size:]) for s in stop):
            return size
    return 0


class Sample:
    """A text that is being generated: iterate to get its pieces as they come; after that all attributes are final.

    A stop text cuts the text, not the tokens: the last token may reach beyond the end of the text.
    """

    def __init__(self, stream: TextStream, end_tokens: Mapping[int, FinishReason], more: Callable[[], bool]) -> None:
        """more: decodes one more token of every sample of the batch; False if none is left to decode."""
        self.tokens: list[int] = []
        self.logprobs: list[float] = []  # of the tokens, under the model itself, in nats
        self.top_logprobs: list[list[tuple[int, float]]] = []  # at each token, if asked for
        self.text = ""
        self.reason: FinishReason | None = None  # None: not ended yet
        self._stream, self._end_tokens, self._more = stream, end_tokens, more
        self._n_read = 0  # characters

    def __iter__(self) -> Iterator[str]:
        while self.reason is None and self._more():
            yield from self._unread()
        self.text += self._stream.finish()
        self.reason = self.reason or ("stop text" if self._stream.stopped else "length")
        yield from self._unread()

    def _unread(self) -> Iterator[str]:
        if piece := self.text[self._n_read :]:
            self._n_read = len(self.text)
            yield piece

    def whole(self) -> Sample:
        """Generate to the end and return itself."""
        for _ in self:
            pass
        return self

    def add(self, token: int, logprob: float, top_logprobs: list[tuple[int, float]] | None) -> None:
        """Add one token, or end the text at it."""
        self.reason = self._end_tokens.get(token)
        if self.reason is not None:
            return
        self.tokens.append(token)
        self.logprobs.append(logprob)
        if top_logprobs is not None:
            self.top_logprobs.append(top_logprobs)
        self.text += self._stream.feed(token)
        if self._stream.stopped:
            self.reason = "stop text"


def generate_batch(
    model: GPT,
    prompts: Sequence[Sequence[int]],
    params: SampleSection,
    *,
    seeds: Sequence[int],
    suppressed: TokenFlags,
    tokenizer: Tokenizer,
    n_top_logprobs: int = 0,
) -> Iterator[Sample]:
    """Generate a sample for each prompt, in order, with as many decoded together as fit in memory.

    Text of later samples is kept while an earlier one is read. seeds: one per prompt. n_top_logprobs: how many of the
    most likely tokens each sample records at each of its tokens.
    """
    n = rows_at_once(model.cfg)
    for first in range(0, len(prompts), n):
        part = slice(first, first + n)
        active = set(range(len(prompts[part])))
        rngs = [np.random.default_rng(seed) for seed in seeds[part]]
        steps = decode(model, prompts[part], params, rngs=rngs, suppressed=suppressed, active=active)
        yield from _samples(steps, active, params, tokenizer, n_top_logprobs)


def _samples(
    steps: Iterator[Step], active: set[int], params: SampleSection, tokenizer: Tokenizer, n_top_logprobs: int
) -> list[Sample]:
    """Return the samples of one batch; reading any of them takes steps for all."""

    def more() -> bool:
        step = next(steps, None)
        if step is None:
            return False
        tops = step.top_logprobs(n_top_logprobs) if n_top_logprobs else [None] * len(step.samples)
        for number, token, logprob, top in zip(step.samples, step.tokens, step.logprobs(), tops, strict=True):
            samples[number].add(token, logprob, top)
            if samples[number].reason is not None:
                active.remove(number)
        return True

    end_tokens = end_reasons(tokenizer, params.stop_tokens)
    samples = [Sample(TextStream(tokenizer, params.stop), end_tokens, more) for _ in active]
    return samples


def end_reasons(tokenizer: Tokenizer, stop_tokens: Sequence[int]) -> dict[int, FinishReason]:
    """Return the tokens that end a text without being part of it, each with the reason."""
    return {**dict.fromkeys(stop_tokens, "stop token"), tokenizer.eot_id: "end of text"}
