"""The key-value cache: decoding reads each token once and keeps its keys and values.

Shapes: B rows, one per sequence, T new tokens of each, S = keys to attend to, nh = n_head, hs = head_size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gptlite.config.schema import ModelSection


@dataclass(frozen=True)
class CachePosition:
    """Positions of the T new tokens of each row, and what they attend to."""

    positions: slice | Tensor  # the same T positions for every row, or one position for each: (B,)
    n_keys: int  # S
    attention_mask: Tensor | None = None  # (B, 1, 1, S) where rows differ in length; None: the causal mask


@dataclass(frozen=True)
class LayerCache:
    """Keys and values of one layer, with space for `capacity` positions: (2, B, nh, capacity, hs)."""

    kv: Tensor
    position: CachePosition

    def extend(self, kv: Tensor) -> Tensor:
        """Store new keys and values, (2, B, nh, T, hs), and return those of all S positions: (2, B, nh, S, hs)."""
        at = self.position.positions
        if isinstance(at, slice):
            self.kv[:, :, :, at] = kv
        else:
            self.kv[:, torch.arange(at.numel(), device=at.device), :, at] = kv[:, :, :, 0].transpose(0, 1)
        return self.kv[:, :, :, : self.position.n_keys]


class KVCache:
    """Keys and values of every layer for B rows; row b holds positions 0 .. lengths[b] - 1.

    Positions past a row's length may hold stale values. Where longer rows make them be read, the mask hides them, and
    later tokens of the row overwrite them. The memory starts as zeros, since a mask hides no nan.
    """

    def __init__(self, cfg: ModelSection, n_rows: int, capacity: int, like: Tensor) -> None:
        """Make room for `capacity` positions of each row. like: a tensor of the device and type to use."""
        self.lengths = [0] * n_rows
        self.memory = like.new_zeros(cfg.n_layer, 2, n_rows, cfg.n_head, capacity, cfg.head_size)

    def advance(self, n_tokens: int) -> CachePosition:
        """Append `n_tokens` to each row and return their positions. Rows that differ in length take one at a time."""
        starts = self.lengths
        self.lengths = [start + n_tokens for start in starts]
        n_keys, capacity = max(self.lengths), self.memory.size(4)
        assert n_keys <= capacity, f"{n_keys} positions in a cache for {capacity}"
        if min(starts) == max(starts):
            return CachePosition(slice(starts[0], n_keys), n_keys)
        assert n_tokens == 1, "rows that differ in length take one token at a time"
        positions = torch.tensor(starts, device=self.memory.device)
        attention_mask = torch.arange(n_keys, device=self.memory.device) <= positions[:, None]  # causal: (B, S)
        return CachePosition(positions, n_keys, attention_mask[:, None, None])

    def layers(self, position: CachePosition) -> list[LayerCache]:
        """Return the cache of each layer, for tokens at `position`."""
        return [LayerCache(self.memory[i], position) for i in range(self.memory.size(0))]

    def select(self, rows: Sequence[int]) -> None:
        """Keep these rows, in this order; a row may come more than once."""
        self.lengths = [self.lengths[row] for row in rows]
        self.memory = self.memory.index_select(2, torch.tensor(rows, device=self.memory.device))

    def replace(self, rows: Sequence[int], other: KVCache) -> None:
        """Overwrite these rows with those of another cache, of the same or a smaller capacity."""
        for row, length in zip(rows, other.lengths, strict=True):
            self.lengths[row] = length
        self.memory[:, :, rows, :, : other.memory.size(4)] = other.memory
