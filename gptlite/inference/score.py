"""Scores: cross-entropy, perplexity and bits per byte of a text under a model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from gptlite.compute.device import Compute
from gptlite.data.dataset.batches import Batch
from gptlite.model.gpt import GPT, IGNORE_INDEX
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


def read_batches(model: GPT, batches: Iterable[Batch], compute: Compute) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the logits and the targets of each batch of (x, y), both on the device: (B, T, V), (B, T)."""
    for x, y in batches:
        with compute.autocast():
            logits = model(x.to(compute.device))
        yield logits, y.to(compute.device)


@torch.no_grad()
def score_windows(
    model: GPT, batches: Iterable[Batch], bytes_and_chars: Tensor, compute: Compute
) -> Iterator[npt.NDArray[np.float64]]:
    """Yield nats, tokens, bytes and characters of each window: (B, 4) for a batch of (x, y), each (B, T) int64.

    Targets of IGNORE_INDEX are not scored. bytes_and_chars: of each id, from `bytes_and_chars_per_token`.
    """
    counts = torch.cat([torch.ones_like(bytes_and_chars[:, :1]), bytes_and_chars], 1)  # tokens, bytes, characters
    counts = torch.cat([counts, torch.zeros_like(counts[:1])])  # of what is not scored
    for logits, y in read_batches(model, batches, compute):
        nats = token_nats(logits, y).double().sum(1, keepdim=True).cpu()
        rows = torch.where(y == IGNORE_INDEX, len(counts) - 1, y).cpu()
        yield torch.cat([nats, counts[rows].sum(1)], 1).numpy()


def score(model: GPT, batches: Iterable[Batch], bytes_and_chars: Tensor, compute: Compute) -> Score:
    """Score batches as `score_windows` does, all together."""
    return Score.of(sum(rows.sum(0) for rows in score_windows(model, batches, bytes_and_chars, compute)))


class PositionLoss(NamedTuple):
    """The mean loss at the positions first .. last, in nats per token, and its standard error."""

    first: int
    last: int
    mean: float
    error: float


@torch.no_grad()
def loss_by_position(model: GPT, batches: Iterable[Batch], compute: Compute) -> list[PositionLoss]:
    """Return the loss after 1, 2, 3, 4, 5 to 6, 7 to 8, 9 to 12, ... tokens of context, up to the longest of any token.

    batches: as for `score`, of windows that do not overlap.
    """
    sums = np.zeros((3, model.cfg.block_size))  # of tokens, their nats, and the squares of these
    for logits, y in read_batches(model, batches, compute):
        nats = token_nats(logits, y).cpu().double()
        is_scored = (y != IGNORE_INDEX).cpu().double()
        sums[:, : y.size(1)] += torch.stack([is_scored.sum(0), nats.sum(0), nats.square().sum(0)]).numpy()
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
    """Return -log p of each target, 0 for IGNORE_INDEX: (B, T, V), (B, T) -> (B, T), at least fp32."""
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").view_as(targets)
