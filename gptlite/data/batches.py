"""Token windows as tensors. B rows, T = block_size; targets are the inputs shifted by one token.

A batch is a pure function of (seed, step): ranks and micro-batches take slices of the same rows, a resumed run needs
nothing but its step. `order` has the formulas.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from gptlite.data.order import Order, Random, Shuffle
from gptlite.data.tokens import Tokens, check_scorable, check_trainable

IGNORED = -100  # a target that is not scored


class Batches:
    """The training batches of a split. DataError when it holds no window."""

    def __init__(
        self,
        split: Tokens,
        block_size: int,
        batch_size: int,
        seed: int,
        order: Literal["shuffle", "random"] = "shuffle",
    ) -> None:
        check_trainable(split, block_size)
        self._split, self._block_size, self._batch_size = split, block_size, batch_size
        kind = Shuffle if order == "shuffle" else Random
        self._order: Order = kind(split.n_tokens, block_size, seed)

    def rows(self, step: int, first_row: int = 0, n_rows: int | None = None) -> tuple[Tensor, Tensor]:
        """Rows first_row .. first_row + n_rows - 1 of the batch of `step`: x, y, each (n_rows, T) int64.

        All rows from first_row on where n_rows is None.
        """
        stop = self._batch_size if n_rows is None else first_row + n_rows
        assert 0 <= first_row < stop <= self._batch_size, "a slice of the batch"
        first = step * self._batch_size
        starts = self._order.starts(np.arange(first + first_row, first + stop, dtype=np.uint64))
        windows = [self._split.read(start, self._block_size + 1) for start in starts.tolist()]
        ids = torch.from_numpy(np.stack(windows).astype(np.int64))
        return ids[:, :-1], ids[:, 1:]


class EvalWindows:
    """A split cut into windows of T from its start: every token but the first is a target exactly once.

    The last window is padded; its padding has targets of IGNORED. DataError for fewer than two tokens.
    """

    def __init__(self, split: Tokens, block_size: int) -> None:
        check_scorable(split)
        self._split, self._block_size = split, block_size
        self.n_windows = -(-(split.n_tokens - 1) // block_size)

    def rows(self, first: int, n_rows: int) -> tuple[Tensor, Tensor]:
        """Windows first .. first + n_rows - 1, fewer at the end: x, y, each (<= n_rows, T) int64."""
        n_rows = min(n_rows, self.n_windows - first)
        assert n_rows > 0, "a window of the split"
        length = n_rows * self._block_size
        start = first * self._block_size
        ids = self._split.read(start, min(length + 1, self._split.n_tokens - start)).astype(np.int64)
        x, y = np.zeros(length, np.int64), np.full(length, IGNORED, np.int64)
        x[: len(ids) - 1], y[: len(ids) - 1] = ids[:-1], ids[1:]
        shape = (n_rows, self._block_size)
        return torch.from_numpy(x.reshape(shape)), torch.from_numpy(y.reshape(shape))


def eval_windows(split: Tokens, block_size: int, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """All windows of EvalWindows in order, `batch_size` at a time: x, y, each (<= batch_size, T) int64."""
    windows = EvalWindows(split, block_size)
    for first in range(0, windows.n_windows, batch_size):
        yield windows.rows(first, batch_size)
