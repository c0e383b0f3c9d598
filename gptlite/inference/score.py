"""Judging: how many bits a model needs for a text it has not seen."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from gptlite.compute.device import Compute
from gptlite.data.batches import IGNORED, Batch
from gptlite.model.gpt import GPT, nats
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


def extents_of(tokenizer: Tokenizer) -> Tensor:
    """How much text each id stands for, in bytes and in characters: (V, 2) int64.

    A character belongs to the id that holds its first byte, so that ids which split one add up to the text.
    """
    # Its other bytes are 10xxxxxx.
    starts = (sum(byte & 0xC0 != 0x80 for byte in piece) for piece in tokenizer.token_bytes())
    return torch.tensor(list(zip(map(len, tokenizer.token_bytes()), starts, strict=True)))


@torch.no_grad()
def score(model: GPT, batches: Iterable[Batch], extents: Tensor, compute: Compute) -> Score:
    """Add up the surprise over batches of (x, y), each (B, T) int64; targets of IGNORED are not scored.

    extents: of each id, from `extents_of`.
    """
    total, tokens, extent = 0.0, 0, torch.zeros(2, dtype=torch.int64)
    for x, y in batches:
        with compute.autocast():
            logits = read(model, x.to(compute.device))
        total += float(nats(logits, y.to(compute.device)))
        scored = y[y != IGNORED]
        tokens += scored.numel()
        extent += extents[scored].sum(0)
    text_bytes, characters = extent.tolist()
    return Score(total, tokens, text_bytes, characters)


def read(model: GPT, idx: Tensor) -> Tensor:
    """model(idx), but for narrow batches past the compiled call, which would be compiled anew for every width."""
    logits: Tensor = model(idx) if idx.size(1) == model.cfg.block_size else model.head(model.hidden(idx))
    return logits
