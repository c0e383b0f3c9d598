"""Token windows as tensors: B rows of T = block_size inputs. Targets are the inputs shifted by one token.

A training batch is a pure function of (seed, step): ranks and micro-batches take slices of the same rows, and a resumed
run needs only its step. `sampler` has the formulas; `eval_windows` chooses the windows in which a text is scored.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from gptlite.data.dataset.eval_windows import EvalWindows, WindowRows
from gptlite.data.dataset.sampler import random_starts, shuffled_starts
from gptlite.data.dataset.tokens import Tokens, check_trainable
from gptlite.model.gpt import IGNORE_INDEX

Batch: TypeAlias = tuple[Tensor, Tensor]


class Batches:
    """The training batches of a split. DataError when it is too short for a window."""

    def __init__(
        self,
        split: Tokens,
        block_size: int,
        batch_size: int,
        seed: int,
        order: Literal["shuffle", "random"] = "shuffle",
    ) -> None:
        check_trainable(split, block_size)
        self._split, self._block_size, self._batch_size, self._seed = split, block_size, batch_size, seed
        self._starts = shuffled_starts if order == "shuffle" else random_starts

    @property
    def n_tokens(self) -> int:
        """Tokens of the split."""
        return self._split.n_tokens

    def rows(self, step: int, first_row: int = 0, n_rows: int | None = None) -> Batch:
        """Rows first_row .. first_row + n_rows - 1 of the batch of `step`: x, y, each (n_rows, T) int64.

        If n_rows is None, all rows from first_row on.
        """
        stop = self._batch_size if n_rows is None else first_row + n_rows
        assert 0 <= first_row < stop <= self._batch_size, "a slice of the batch"
        first = step * self._batch_size
        rows = np.arange(first + first_row, first + stop, dtype=np.uint64)
        starts = self._starts(rows, self._split.n_tokens, self._block_size, self._seed)
        windows = [self._split.read(start, self._block_size + 1) for start in starts.tolist()]
        ids = torch.from_numpy(np.stack(windows).astype(np.int64))
        return ids[:, :-1], ids[:, 1:]


def eval_batches(windows: EvalWindows, batch_size: int, *, first: int = 0, every: int = 1) -> Iterator[Batch]:
    """Yield the windows of a text, `batch_size` at a time: x, y, each (<= batch_size, longest window) int64.

    Yields only every `every`-th batch from `first` on. Padding of shorter windows, and tokens already scored in an
    earlier window, have the target IGNORE_INDEX.
    """
    for rows in itertools.islice(windows.batches(batch_size), first, None, every):
        yield read_batch(windows, rows)


def read_batch(windows: EvalWindows, rows: WindowRows) -> Batch:
    """Return one batch of `eval_batches`."""
    shape = len(rows), int(rows[:, 1].max())
    x, y = np.zeros(shape, np.int64), np.full(shape, IGNORE_INDEX, np.int64)
    for row, (start, length, skip) in enumerate(rows.tolist()):
        ids = windows.read(start, length)
        x[row, :length], y[row, skip:length] = ids[:-1], ids[skip + 1 :]
    return torch.from_numpy(x), torch.from_numpy(y)
