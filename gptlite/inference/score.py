"""Judging: how many bits a model needs for a text it has not seen."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from gptlite.compute.device import Compute
from gptlite.data.batches import IGNORE_INDEX, Batch
from gptlite.model.gpt import GPT, nll_sum
from gptlite.tokenizers.base import Tokenizer


@dataclass(frozen=True)
class Score:
    """Total surprise of the scored tokens, and how much text they stand for."""

    nats: float
    tokens: int
    bytes: int
    characters: int

    @classmethod
    def total(cls, scores: Iterable[Score]) -> Score:
        """Of several texts together."""
        nats, *counts = (sum(figures) for figures in zip(*map(dataclasses.astuple, scores), strict=True))
        return cls(nats, *map(int, counts))

    @property
    def loss(self) -> float:
        """Nats per token."""
        return self.nats / self.tokens

    @property
    def perplexity(self) -> float:
        return math.exp(self.loss) if self.loss < 700 else math.inf

    @property
    def bits_per_byte(self) -> float:
        """nats / (ln 2 x bytes of the raw text of the scored tokens): comparable between tokenizers.

        End-of-text tokens stand for no bytes and still count in the numerator: their price is part of the text's.
        """
        return self.nats / (math.log(2) * self.bytes) if self.bytes else math.inf

    @property
    def bits_per_character(self) -> float:
        """The same per Unicode character."""
        return self.nats / (math.log(2) * self.characters) if self.characters else math.inf


def bytes_and_chars_per_token(tokenizer: Tokenizer) -> Tensor:
    """How much text each id stands for, in bytes and in characters: (V, 2) int64.

    A character belongs to the id that holds its first byte, so that ids which split one add up to the text.
    """
    # Its other bytes are 10xxxxxx.
    starts = (sum(byte & 0xC0 != 0x80 for byte in piece) for piece in tokenizer.token_bytes())
    return torch.tensor(list(zip(map(len, tokenizer.token_bytes()), starts, strict=True)))


@torch.no_grad()
def score(model: GPT, batches: Iterable[Batch], extents: Tensor, compute: Compute) -> Score:
    """Add up the surprise over batches of (x, y), each (B, T) int64; targets of IGNORE_INDEX are not scored.

    extents: of each id, from `extents_of`.
    """
    total, tokens, extent = 0.0, 0, torch.zeros(2, dtype=torch.int64)
    for x, y in batches:
        with compute.autocast():
            logits = read(model, x.to(compute.device))
        total += float(nll_sum(logits, y.to(compute.device)))
        scored = y[y != IGNORE_INDEX]
        tokens += scored.numel()
        extent += extents[scored].sum(0)
    text_bytes, characters = extent.tolist()
    return Score(total, tokens, text_bytes, characters)


@dataclass(frozen=True, eq=False)
class ByPosition:
    """Surprise by place in the context: entry t is of the tokens that had t + 1 tokens before them, (T,) each."""

    nats: npt.NDArray[np.float64]
    tokens: npt.NDArray[np.int64]

    @classmethod
    def total(cls, parts: Sequence[ByPosition]) -> ByPosition:
        """Of several texts together."""
        return cls(np.sum([part.nats for part in parts], axis=0), np.sum([part.tokens for part in parts], axis=0))

    @property
    def means(self) -> list[float]:
        """Nats per token at the positions 1, 2, ... that any token had."""
        reached = self.tokens > 0  # every window begins at 1: there are no gaps
        means: list[float] = (self.nats[reached] / self.tokens[reached]).tolist()
        return means


@torch.no_grad()
def by_position(model: GPT, batches: Iterable[Batch], compute: Compute) -> ByPosition:
    """The same sum as `score`, kept apart by position; for windows side by side."""
    totals, tokens = np.zeros(model.cfg.block_size), np.zeros(model.cfg.block_size, np.int64)
    for x, y in batches:
        with compute.autocast():
            logits = read(model, x.to(compute.device))
        each = token_nats(logits, y.to(compute.device))
        totals[: x.size(1)] += each.cpu().double().sum(0).numpy()
        tokens[: x.size(1)] += (y != IGNORE_INDEX).sum(0).numpy()
    return ByPosition(totals, tokens)


def token_nats(logits: Tensor, targets: Tensor) -> Tensor:
    """-log p of every target, 0 for IGNORE_INDEX: (B, T, V), (B, T) -> (B, T), at least fp32."""
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").view_as(targets)


def read(model: GPT, idx: Tensor) -> Tensor:
    """model(idx), but for narrow batches past the compiled call, which would be compiled anew for every width."""
    logits: Tensor = model(idx) if idx.size(1) == model.cfg.block_size else model.head(model.hidden(idx))
    return logits
