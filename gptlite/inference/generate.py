"""Decoding: choosing the next token of several samples at once, and the text that they become.

Shapes: B samples, V = vocab_size.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gptlite.data.order import mix
from gptlite.errors import ConfigError
from gptlite.inference.engine import Contexts, rows_at_once
from gptlite.model.gpt import GPT
from gptlite.tokenizers.base import StreamDecoder, Tokenizer


@dataclass(frozen=True)
class Decoding:
    """How the next token is chosen, and when to stop."""

    max_new_tokens: int = 200
    temperature: float = 0.8  # 0: the likeliest token
    top_k: int | None = None
    top_p: float | None = None
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        accepted = {
            "max_new_tokens": (self.max_new_tokens >= 1, "a whole number >= 1"),
            "temperature": (0 <= self.temperature < math.inf, "a number >= 0"),
            "top_k": (self.top_k is None or self.top_k >= 1, "a whole number >= 1, or None"),
            "top_p": (self.top_p is None or 0 < self.top_p <= 1, "a number > 0 and <= 1, or None"),
            "stop": ("" not in self.stop, "texts that are not empty"),
        }
        problems = [f"{key} = {getattr(self, key)}: {words}" for key, (fits, words) in accepted.items() if not fits]
        if problems:
            raise ConfigError(problems)


def keep_top_k(logits: Tensor, k: int) -> Tensor:
    """Only the k likeliest of each row stay, -inf elsewhere: (B, V) -> (B, V). Ties keep the lower ids."""
    k = min(k, logits.size(-1))
    return _keep(logits, logits.topk(k).values[:, -1:], k)


def keep_top_p(logits: Tensor, p: float) -> Tensor:
    """The fewest likeliest of each row that together reach probability p stay (Holtzman et al. 2019): as above."""
    total = logits.logsumexp(-1, keepdim=True)
    k, vocab_size = 256, logits.size(-1)
    while True:
        # Sorting all of a large vocabulary would take longer than the model: more only where these do not suffice.
        top = logits.topk(min(k, vocab_size)).values
        probabilities = (top - total).exp()
        before = probabilities.cumsum(-1) - probabilities
        n = ((before < p) & (probabilities > 0)).sum(-1, keepdim=True)
        if k >= vocab_size or bool((n < k).all()):
            return _keep(logits, top.gather(-1, n - 1), n)
        k *= 16


def _keep(logits: Tensor, least: Tensor, n: Tensor | int) -> Tensor:
    """What is above `least` stays, and of what equals it the lower ids, `n` in all: (B, V), (B, 1), (B, 1)."""
    above, equal = logits > least, logits == least
    room = n - above.sum(-1, keepdim=True)
    return logits.masked_fill(~(above | (equal & (equal.cumsum(-1) <= room))), -math.inf)


def draw(logits: Tensor, rngs: Sequence[torch.Generator]) -> Tensor:
    """An id of each row, drawn from its softmax with one number of its own generator: (B, V) -> (B,).

    The first id whose cumulative weight passes a uniform share of the whole: never one of weight 0.
    """
    cumulative = torch.softmax(logits, dim=-1).cumsum(-1)
    share = torch.stack([torch.rand(1, dtype=logits.dtype, generator=rng) for rng in rngs])
    return torch.searchsorted(cumulative, share * cumulative[:, -1:], right=True)[:, 0]


def choose(logits: Tensor, how: Decoding, rngs: Sequence[torch.Generator]) -> list[int]:
    """The next token of each row: temperature, then top-k, then top-p, then a draw. Temperature 0 is greedy.

    logits: (B, V). What a row draws depends on that row and its generator alone.
    """
    if how.temperature == 0:
        greedy: list[int] = logits.argmax(-1).tolist()
        return greedy
    # The largest becomes 0 first, so that no temperature, however low, makes it infinite.
    logits = (logits - logits.amax(-1, keepdim=True)).double() / how.temperature
    if how.top_k is not None:
        logits = keep_top_k(logits, how.top_k)
    if how.top_p is not None:
        logits = keep_top_p(logits, how.top_p)
    drawn: list[int] = draw(logits, rngs).tolist()
    return drawn


def never(tokenizer: Tokenizer, *, ends: bool) -> Tensor:
    """True for ids that must not be drawn: those that no text produces: (V,) bool.

    End-of-text counts among them unless the model has learned from texts that end.
    """
    barred = torch.tensor([not piece for piece in tokenizer.token_bytes()])
    barred[tokenizer.eot_id] = not ends
    return barred


def decode(
    model: GPT,
    prompts: Sequence[Sequence[int]],
    how: Decoding,
    *,
    rngs: Sequence[torch.Generator],
    barred: Tensor,
    end: int,
    ended: set[int],
) -> Iterator[dict[int, int]]:
    """What follows the prompts (at least one id each), decoded together: at each step {sample: its next token}.

    A sample ends at max_new_tokens, before end-of-text, or when the caller puts it into `ended`.
    """
    contexts = Contexts(model, prompts, how.max_new_tokens - 1)
    going = list(range(len(prompts)))
    for left in range(how.max_new_tokens - 1, -1, -1):
        tokens = choose(contexts.logits.masked_fill(barred, -math.inf), how, [rngs[sample] for sample in going])
        step = {sample: token for sample, token in zip(going, tokens, strict=True) if token != end}
        ended.update(set(going) - set(step))
        yield step
        rows = [row for row, sample in enumerate(going) if sample not in ended]
        if not rows or not left:
            return
        contexts.select(rows)
        going = [going[row] for row in rows]
        contexts.read([step[sample] for sample in going])


class TextStream:
    """The text of one sample as its tokens come: never half a character; it ends before the first stop text.

    What could be the beginning of a stop text is held back until it is known not to be one.
    """

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str] = ()) -> None:
        self._decoder, self._stop = StreamDecoder(tokenizer), stop
        self._held = ""
        self.ended = False

    def feed(self, token: int) -> str:
        """The text that is certain with this token, perhaps none; nothing once a stop text has come."""
        return "" if self.ended else self._take(self._decoder.feed(token), last=False)

    def finish(self) -> str:
        """What was held back, when no more tokens come."""
        return "" if self.ended else self._take(self._decoder.flush(), last=True)

    def _take(self, text: str, *, last: bool) -> str:
        held = self._held + text
        cut = min((at for s in self._stop if (at := held.find(s)) >= 0), default=len(held))
        # A stop text that came whole can still turn out to lie behind one that began before it.
        sure = len(held) if last else len(held) - _could_begin(held, self._stop)
        ready = min(cut, sure)
        self.ended = last or ready == cut < len(held)
        self._held = held[ready:]
        return held[:ready]


def _could_begin(text: str, stop: Sequence[str]) -> int:
    """Length of the longest end of `text` that begins a stop text."""
    longest = max((len(s) for s in stop), default=0)
    for size in range(min(len(text), longest - 1), 0, -1):
        if any(s.startswith(text[-size:]) for s in stop):
            return size
    return 0


def write(
    model: GPT,
    prompts: Sequence[Sequence[int]],
    how: Decoding,
    *,
    rngs: Sequence[torch.Generator],
    barred: Tensor,
    tokenizer: Tokenizer,
) -> Iterator[Iterator[str]]:
    """For each prompt in order, what the model adds to it, piece by piece. As many as fit are decoded together.

    What comes of later samples while an earlier one is read waits for its turn.
    """
    n = rows_at_once(model.cfg)
    for first in range(0, len(prompts), n):
        part = slice(first, first + n)
        ended: set[int] = set()
        steps = decode(model, prompts[part], how, rngs=rngs[part], barred=barred, end=tokenizer.eot_id, ended=ended)
        texts = [TextStream(tokenizer, how.stop) for _ in prompts[part]]
        waiting: list[deque[str]] = [deque() for _ in texts]
        for sample in range(len(texts)):
            yield _pieces(sample, steps, texts, waiting, ended)


def _pieces(
    sample: int, steps: Iterator[dict[int, int]], texts: list[TextStream], waiting: list[deque[str]], ended: set[int]
) -> Iterator[str]:
    """The text of one of the samples that are decoded together, taking steps of all as it needs them."""
    while True:
        while waiting[sample]:
            yield waiting[sample].popleft()
        step = next(steps, None) if sample not in ended else None
        if step is None:
            break
        for other, token in step.items():
            if piece := texts[other].feed(token):
                waiting[other].append(piece)
            if texts[other].ended:
                ended.add(other)
    if piece := texts[sample].finish():
        yield piece


def sample_seed(seed: int, i: int) -> int:
    """The generator seed of sample `i`: samples of one call differ, whatever their number."""
    return mix(seed, i) >> 1  # torch takes 63 bits
