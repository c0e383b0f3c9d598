"""Scores: cross-entropy, perplexity and bits per byte of a text under a model."""

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
from gptlite.data.dataset.batches import Batch
from gptlite.model.gpt import GPT, IGNORE_INDEX, nll_sum
from gptlite.tokenizers.base import Tokenizer


@dataclass(frozen=True)
class Score:
    """The total -log p of the scored tokens, and how much text they stand for."""

    nats: float
    tokens: int
    bytes: int
    characters: int

    @classmethod
    def total(cls, scores: Iterable[Score]) -> Score:
        """The score of several texts together."""
        nats, *counts = (sum(figures) for figures in zip(*map(dataclasses.astuple, scores), strict=True))
        return cls(nats, *map(int, counts))

    @property
    def loss(self) -> float:
        """Mean cross-entropy in nats per token."""
        return self.nats / self.tokens

    @property
    def perplexity(self) -> float:
        return math.exp(self.loss) if self.loss < 700 else math.inf

    @property
    def bits_per_byte(self) -> float:
        """nats / (ln 2 x bytes of the raw text of the scored tokens): comparable between tokenizers.

        End-of-text tokens have no bytes, but count in the numerator: predicting where texts end is part of the task.
        """
        return self.nats / (math.log(2) * self.bytes) if self.bytes else math.inf

    @property
    def bits_per_character(self) -> float:
        """nats / (ln 2 x Unicode characters)."""
        return self.nats / (math.log(2) * self.characters) if self.characters else math.inf


def bytes_and_chars_per_token(tokenizer: Tokenizer) -> Tensor:
    """The bytes and the characters of the text of each id: (V, 2) int64.

    A character counts where its first byte is, so that the ids of a text add up to it.
    """
    # The other bytes of a character are 10xxxxxx.
    starts = (sum(byte & 0xC0 != 0x80 for byte in piece) for piece in tokenizer.token_bytes())
    return torch.tensor(list(zip(map(len, tokenizer.token_bytes()), starts, strict=True)))


@torch.no_grad()
def score(model: GPT, batches: Iterable[Batch], bytes_and_chars: Tensor, compute: Compute) -> Score:
    """Score batches of (x, y), each (B, T) int64; targets of IGNORE_INDEX are not scored.

    bytes_and_chars: of each id, from `bytes_and_chars_per_token`.
    """
    nats, tokens, text_size = 0.0, 0, torch.zeros(2, dtype=torch.int64)
    for x, y in batches:
        with compute.autocast():
            logits = forward_uncompiled(model, x.to(compute.device))
        nats += float(nll_sum(logits, y.to(compute.device)))
        scored = y[y != IGNORE_INDEX]
        tokens += scored.numel()
        text_size += bytes_and_chars[scored].sum(0)
    n_bytes, n_characters = text_size.tolist()
    return Score(nats, tokens, n_bytes, n_characters)


@dataclass(frozen=True, eq=False)
class ByPosition:
    """Total -log p by position: entry t is of the tokens with t + 1 tokens of context, (T,) each."""

    nats: npt.NDArray[np.float64]
    tokens: npt.NDArray[np.int64]

    @classmethod
    def total(cls, parts: Sequence[ByPosition]) -> ByPosition:
        """The scores of several texts together."""
        return cls(np.sum([part.nats for part in parts], axis=0), np.sum([part.tokens for part in parts], axis=0))

    @property
    def means(self) -> list[float]:
        """Nats per token after 1, 2, ... tokens of context, up to the longest context of any token."""
        reached = self.tokens > 0  # every window starts at 1, so there are no gaps
        means: list[float] = (self.nats[reached] / self.tokens[reached]).tolist()
        return means


@torch.no_grad()
def score_by_position(model: GPT, batches: Iterable[Batch], compute: Compute) -> ByPosition:
    """Score batches as `score` does, each position separately; for windows that do not overlap."""
    nats, tokens = np.zeros(model.cfg.block_size), np.zeros(model.cfg.block_size, np.int64)
    for x, y in batches:
        with compute.autocast():
            logits = forward_uncompiled(model, x.to(compute.device))
        losses = token_nats(logits, y.to(compute.device))
        nats[: x.size(1)] += losses.cpu().double().sum(0).numpy()
        tokens[: x.size(1)] += (y != IGNORE_INDEX).sum(0).numpy()
    return ByPosition(nats, tokens)


def token_nats(logits: Tensor, targets: Tensor) -> Tensor:
    """-log p of each target, 0 for IGNORE_INDEX: (B, T, V), (B, T) -> (B, T), at least fp32."""
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").view_as(targets)


def forward_uncompiled(model: GPT, idx: Tensor) -> Tensor:
    """model(idx), without torch.compile for inputs below block_size, since each length would be compiled again."""
    logits: Tensor = model(idx) if idx.size(1) == model.cfg.block_size else model.head(model.hidden(idx))
    return logits
