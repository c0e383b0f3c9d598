"""Judging: how many bits a model needs for a text it has not seen."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from gptlite.compute.device import Compute
from gptlite.data.batches import IGNORED
from gptlite.model.gpt import GPT, nats
from gptlite.tokenizers.base import Tokenizer


@dataclass(frozen=True)
class Score:
    """Total surprise of the scored tokens, and what they stand for."""

    nats: float
    tokens: int
    bytes: int

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


def bytes_per_token(tokenizer: Tokenizer) -> Tensor:
    """How many bytes of text each id stands for: (V,) int64."""
    return torch.tensor([len(piece) for piece in tokenizer.token_bytes()])


@torch.no_grad()
def score(model: GPT, windows: Iterable[tuple[Tensor, Tensor]], lengths: Tensor, compute: Compute) -> Score:
    """Add up the surprise over windows of (x, y), each (B, T) int64; targets of IGNORED are not scored.

    lengths: bytes of each id, from `bytes_per_token`.
    """
    total, tokens, text_bytes = 0.0, 0, 0
    for x, y in windows:
        with compute.autocast():
            logits = model(x.to(compute.device))
        total += float(nats(logits, y.to(compute.device)))
        scored = y[y != IGNORED]
        tokens += scored.numel()
        text_bytes += int(lengths[scored].sum())
    return Score(total, tokens, text_bytes)
