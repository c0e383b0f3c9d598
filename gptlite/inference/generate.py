"""Decoding: one token at a time, through the cache, past the context length if need be."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gptlite.data.order import mix
from gptlite.errors import ConfigError
from gptlite.model.attention import KVCache
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


class Context:
    """What the model has read, through a cache.

    The model has block_size positions: when the window is full, reading starts anew from its last half, and goes
    on from there. A first reading longer than the window keeps its last block_size tokens.
    """

    def __init__(self, model: GPT) -> None:
        self.model = model
        self.window: list[int] = []
        self._clear()

    def _clear(self) -> None:
        self.cache = KVCache(self.model.cfg.n_layer, self.model.cfg.block_size)

    @torch.no_grad()
    def read(self, ids: Sequence[int]) -> Tensor:
        """Take in `ids`; the logits of the token after the last of them: (V,), fp32 or better, on the CPU."""
        block_size = self.model.cfg.block_size
        new = list(ids)
        if self.cache.length + len(new) > block_size:
            keep = max(1, block_size // 2) if self.window else block_size
            new = (self.window + new)[-keep:]
            self.window = []
            self._clear()
        self.window += new
        device = self.model.token_embedding.weight.device
        # Not through a compiled call: every length would be compiled anew.
        logits = self.model.forward(torch.tensor([new], device=device), cache=self.cache)
        last: Tensor = logits[0, -1]
        return (last.float() if last.dtype == torch.bfloat16 else last).cpu()


def keep_top_k(logits: Tensor, k: int) -> Tensor:
    """Only the k likeliest stay, -inf elsewhere: (V,) -> (V,). More than V keeps all; ties keep the lower ids."""
    order = torch.argsort(logits, descending=True, stable=True)
    kept = torch.full_like(logits, -math.inf)
    kept[order[:k]] = logits[order[:k]]
    return kept


def keep_top_p(logits: Tensor, p: float) -> Tensor:
    """The fewest likeliest tokens that together reach probability p stay (Holtzman et al. 2019): (V,) -> (V,)."""
    order = torch.argsort(logits, descending=True, stable=True)
    probabilities = torch.softmax(logits[order], dim=-1)
    before = probabilities.cumsum(dim=-1) - probabilities
    nucleus = order[(before < p) & (probabilities > 0)]
    kept = torch.full_like(logits, -math.inf)
    kept[nucleus] = logits[nucleus]
    return kept


def choose(logits: Tensor, how: Decoding, rng: torch.Generator) -> int:
    """The next token: temperature, then top-k, then top-p, then a draw: (V,) -> id. Temperature 0 is greedy."""
    if how.temperature == 0:
        return int(logits.argmax())
    # The largest becomes 0 first, so that no temperature, however low, makes it infinite.
    logits = (logits - logits.max()).double() / how.temperature
    if how.top_k is not None:
        logits = keep_top_k(logits, how.top_k)
    if how.top_p is not None:
        logits = keep_top_p(logits, how.top_p)
    return int(torch.multinomial(torch.softmax(logits, dim=-1), 1, generator=rng))


def never(tokenizer: Tokenizer, *, ends: bool) -> Tensor:
    """True for ids that must not be drawn: those that no text produces: (V,) bool.

    End-of-text counts among them unless the model has learned from texts that end.
    """
    barred = torch.tensor([not piece for piece in tokenizer.token_bytes()])
    barred[tokenizer.eot_id] = not ends
    return barred


def generate(
    model: GPT, ids: Sequence[int], how: Decoding, *, rng: torch.Generator, barred: Tensor, end: int
) -> Iterator[int]:
    """New token ids after `ids` (at least one), one by one; stops before end-of-text or at max_new_tokens."""
    context = Context(model)
    logits = context.read(ids)
    for i in range(how.max_new_tokens):
        token = choose(logits.masked_fill(barred, -math.inf), how, rng)
        if token == end:
            return
        yield token
        if i + 1 < how.max_new_tokens:
            logits = context.read([token])


def stream_text(tokens: Iterator[int], tokenizer: Tokenizer, stop: Sequence[str] = ()) -> Iterator[str]:
    """Text as it comes, never half a character; ends before the first stop string.

    What could be the beginning of a stop string is held back until it is known not to be one.
    """
    decoder = StreamDecoder(tokenizer)
    held = ""
    for token in tokens:
        held += decoder.feed(token)
        found = [at for s in stop if (at := held.find(s)) >= 0]
        if found:
            yield held[: min(found)]
            return
        ready = len(held) - _could_begin(held, stop)
        if ready:
            yield held[:ready]
            held = held[ready:]
    held += decoder.flush()
    found = [at for s in stop if (at := held.find(s)) >= 0]
    if held := held[: min(found)] if found else held:
        yield held


def _could_begin(text: str, stop: Sequence[str]) -> int:
    """Length of the longest end of `text` that begins a stop string."""
    longest = max((len(s) for s in stop), default=0)
    for size in range(min(len(text), longest - 1), 0, -1):
        if any(s.startswith(text[-size:]) for s in stop):
            return size
    return 0


def sample_seed(seed: int, i: int) -> int:
    """The generator seed of sample `i`: samples of one call differ, whatever their number."""
    return mix(seed, i) >> 1  # torch takes 63 bits
