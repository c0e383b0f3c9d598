"""What attention remembers of the tokens already read, so that decoding reads each token once.

Shapes: B rows of text, T new tokens of each, nh = n_head, hs = head_size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gptlite.config.schema import ModelSection


@dataclass(frozen=True)
class CachePosition:
    """Where the T new tokens of each row stand: `positions` is one slice for all rows, or (B,) if they differ.

    visible: True at the keys that the one new token of each row may look at, (B, 1, 1, S); None if it is all of them.
    """

    positions: slice | Tensor
    n_keys: int  # S
    attention_mask: Tensor | None = None


@dataclass(frozen=True)
class LayerCache:
    """Keys and values of one layer, room for `capacity` positions of each row: (2, B, nh, capacity, hs)."""

    kv: Tensor
    place: CachePosition

    def extend(self, kv: Tensor) -> Tensor:
        """Write (2, B, nh, T, hs) new keys and values in their place; all of them: (2, B, nh, S, hs)."""
        at = self.place.positions
        if isinstance(at, slice):
            self.kv[:, :, :, at] = kv
        else:
            self.kv[:, torch.arange(at.numel(), device=at.device), :, at] = kv[:, :, :, 0].transpose(0, 1)
        return self.kv[:, :, :, : self.place.n_keys]


class KVCache:
    """Keys and values of every layer for B rows; row b holds its first lengths[b] positions, from the left on.

    What lies to the right of a row's length is not its own: rows of other lengths make it be read, a mask hides it,
    and the row's later tokens write over it. It begins as zeros, for no mask hides a nan.
    """

    def __init__(self, cfg: ModelSection, n_rows: int, capacity: int, like: Tensor) -> None:
        self.lengths = [0] * n_rows
        self.memory = like.new_zeros(cfg.n_layer, 2, n_rows, cfg.n_head, capacity, cfg.head_size)

    def advance(self, n_tokens: int) -> CachePosition:
        """The place of `n_tokens` more of each row. Rows of different lengths take one at a time."""
        starts = self.lengths
        self.lengths = [start + n_tokens for start in starts]
        n_keys = max(self.lengths)
        assert n_keys <= self.memory.size(4), f"{n_keys} positions in a cache with room for {self.memory.size(4)}"
        if min(starts) == max(starts):
            return CachePosition(slice(starts[0], n_keys), n_keys)
        assert n_tokens == 1, "rows of different lengths read one token at a time"
        positions = torch.tensor(starts, device=self.memory.device)
        attention_mask = torch.arange(n_keys, device=self.memory.device) <= positions[:, None]
        return CachePosition(positions, n_keys, attention_mask[:, None, None])

    def layers(self, place: CachePosition) -> list[LayerCache]:
        """The part of each layer."""
        return [LayerCache(self.memory[i], place) for i in range(self.memory.size(0))]

    def select(self, rows: Sequence[int]) -> None:
        """Keep these rows, in this order; a row may come more than once."""
        self.lengths = [self.lengths[row] for row in rows]
        self.memory = self.memory.index_select(2, torch.tensor(rows, device=self.memory.device))

    def replace(self, rows: Sequence[int], other: KVCache) -> None:
        """Put the rows of another cache, of no more capacity, in the place of these."""
        for row, length in zip(rows, other.lengths, strict=True):
            self.lengths[row] = length
        self.memory[:, :, rows, :, : other.memory.size(4)] = other.memory
