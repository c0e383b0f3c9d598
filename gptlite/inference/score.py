"""Scores: cross-entropy, perplexity and bits per byte of a text under a model."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from gptlite.compute.device import Compute
from gptlite.data.dataset.batches import Batch
from gptlite.model.gpt import GPT
from gptlite.model.loss import IGNORE_INDEX
from gptlite.model.sizes import MAX_LOGITS
from gptlite.tokenizers.base import Tokenizer


@dataclass(frozen=True)
class Score:
    """The total -log p of the scored tokens, and how much text they stand for."""

    nats: float
    tokens: int
    bytes: int
    characters: int
    blocks: tuple[tuple[float, int], ...] = ()  # the nats and bytes of its parts, where they were asked for

    @classmethod
    def of(cls, sums: npt.ArrayLike, blocks: tuple[tuple[float, int], ...] = ()) -> Score:
        """Return the score that has these nats, tokens, bytes and characters: (4,)."""
        nats, tokens, n_bytes, characters = np.asarray(sums).tolist()
        return cls(nats, int(tokens), int(n_bytes), int(characters), blocks)

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
    """Return the bytes and the characters of the text of each id: (V, 2) int64.

    A character counts where its first byte is, so that the ids of a text add up to it.
    """
    # The other bytes of a character are 10xxxxxx.
    starts = (sum(byte & 0xC0 != 0x80 for byte in piece) for piece in tokenizer.token_bytes())
    return torch.tensor(list(zip(map(len, tokenizer.token_bytes()), starts, strict=True)))


def compute_logits(model: GPT, batch: Batch, compute: Compute) -> tuple[Tensor, Tensor]:
    """Return the logits and the targets of a batch (x, y), both on the device: (B, T, V), (B, T)."""
    x, y = batch
    with compute.autocast():
        logits = model(x.to(compute.device))
    return logits, y.to(compute.device)


@torch.no_grad()
def compute_nats(model: GPT, batch: Batch, compute: Compute) -> Tensor:
    """Return -log p of each target of a batch (x, y), 0 for IGNORE_INDEX: (B, T) in fp64 on the CPU.

    Where there are more than MAX_LOGITS logits, they are computed in parts.
    """
    x, y = batch
    rows = max(1, MAX_LOGITS // model.vocab_size)  # of a part
    with compute.autocast():
        hidden = model.hidden(x.to(compute.device)).flatten(0, 1)  # (B T, C)
        parts = zip(torch.split(hidden, rows), torch.split(y.to(compute.device).flatten(), rows), strict=True)
        nats = torch.cat([token_nats(model.head(states), targets) for states, targets in parts])
    return nats.view_as(y).cpu().double()


def score_windows(model: GPT, batch: Batch, bytes_and_chars: Tensor, compute: Compute) -> npt.NDArray[np.float64]:
    """Return nats, tokens, bytes and characters of each window of a batch (x, y), each (B, T) int64: (B, 4).

    Targets of IGNORE_INDEX are not scored. bytes_and_chars: of each id, from `bytes_and_chars_per_token`.
    """
    targets = batch[1]
    is_scored = (targets != IGNORE_INDEX)[..., None]  # (B, T, 1)
    text = is_scored * bytes_and_chars[targets.clamp(min=0)]  # (B, T, 2)
    nats = compute_nats(model, batch, compute)
    return torch.cat([nats.sum(1, keepdim=True), is_scored.sum(1), text.sum(1)], 1).numpy()


class PositionLoss(NamedTuple):
    """The mean loss at the positions first .. last, in nats per token, and its standard error."""

    first: int
    last: int
    mean: float
    error: float


def loss_by_position(model: GPT, batches: Iterable[Batch], compute: Compute) -> list[PositionLoss]:
    """Return the loss after 1, 2, 3, 4, 5 to 6, 7 to 8, 9 to 12, ... tokens of context, up to the longest of any token.

    batches: of (x, y), each (B, T) int64, of windows that do not overlap.
    """
    sums = np.zeros((3, model.cfg.block_size))  # of tokens, their nats, and the squares of these
    for batch in batches:
        nats = compute_nats(model, batch, compute)
        is_scored = (batch[1] != IGNORE_INDEX).double()
        sums[:, : nats.size(1)] += torch.stack([is_scored.sum(0), nats.sum(0), nats.square().sum(0)]).numpy()
    reached = int((sums[0] > 0).sum())  # every window starts at 1, so there are no gaps
    found, first = [], 1
    while first <= reached:
        last = min(reached, first - 1 + max(1, 2 ** (first - 1).bit_length() // 4))
        n, total, squares = sums[:, first - 1 : last].sum(1)
        variance = max(0.0, squares / n - (total / n) ** 2)
        found.append(PositionLoss(first, last, float(total / n), math.sqrt(variance / n)))
        first = last + 1
    return found


def token_nats(logits: Tensor, targets: Tensor) -> Tensor:
    """Return -log p of each target, 0 for IGNORE_INDEX: (..., V), (...) -> (...), at least fp32."""
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten(), reduction="none").view_as(targets)
