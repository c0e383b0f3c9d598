"""Token windows as tensors: B rows of T = block_size inputs. Targets are the inputs shifted by one token.

A training batch is a pure function of (seed, step): ranks and micro-batches take slices of the same rows, and a resumed
run needs only its step; `sampler` has the formulas. A text is scored in windows: each token once, after the
tokens before it in its own document.

A document begins at the first id and at every end-of-text. Of its n ids, the n - 1 that follow another are scored. If
texts end in end-of-text, the one after a document is scored too, although none is stored after the last one. So no
document sees another, and their order does not matter.

A document with I inputs is split into windows of at most T, which start S apart (without overlap if S = T): window k
takes inputs k S .. k S + T - 1 and scores those after its first T - S; the first window scores all of its inputs. So a
token is scored in the first window that reaches it, after at least T - S tokens if the document has them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gptlite.data.dataset.sampler import random_starts, shuffled_starts
from gptlite.data.dataset.tokens import Tokens, check_scorable, check_trainable, find_id
from gptlite.errors import ConfigError
from gptlite.model.loss import IGNORE_INDEX
from gptlite.tokenizers.folder import Ids

Batch: TypeAlias = tuple[Tensor, Tensor]
WindowRows = npt.NDArray[np.int64]  # (n, 3): start of each window, number of inputs, how many of them to skip

_BLOCK = 1 << 16  # windows that are sorted by length at a time


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

    def starts(self, step: int, first_row: int = 0, n_rows: int | None = None) -> npt.NDArray[np.int64]:
        """Where rows first_row .. first_row + n_rows - 1 of the batch of `step` begin in the text: (n_rows,).

        If n_rows is None, all rows from first_row on.
        """
        stop = self._batch_size if n_rows is None else first_row + n_rows
        assert 0 <= first_row < stop <= self._batch_size, "a slice of the batch"
        first = step * self._batch_size
        rows = np.arange(first + first_row, first + stop, dtype=np.uint64)
        return self._starts(rows, self._split.n_tokens, self._block_size, self._seed)

    def rows(self, step: int, first_row: int = 0, n_rows: int | None = None) -> Batch:
        """Rows of the batch of `step`, as `starts` has them: x, y, each (n_rows, T) int64."""
        starts = self.starts(step, first_row, n_rows)
        windows = [self._split.read(start, self._block_size + 1) for start in starts.tolist()]
        ids = torch.from_numpy(np.stack(windows).astype(np.int64))
        return ids[:, :-1], ids[:, 1:]


class EvalWindows:
    """The windows of a text. end: the id of end-of-text; None for a single document.

    padding: whether a batch may have windows of different lengths. Memory grows only with the number of documents.
    DataError for fewer than two tokens, ConfigError for a stride outside 1 .. block_size (None: block_size).
    """

    def __init__(
        self,
        tokens: Tokens,
        block_size: int,
        *,
        stride: int | None = None,
        end: int | None = None,
        padding: bool = True,
    ) -> None:
        check_scorable(tokens)
        if stride is not None and not 1 <= stride <= block_size:
            raise ConfigError(
                f"a stride of {stride} is not possible. Use 1 to model.block_size ({block_size}).", where="stride"
            )
        self._tokens, self._end, self._padding = tokens, end, padding
        self._block_size, self._stride = block_size, stride or block_size
        self._edges = _edges(tokens, end)
        overhang = np.maximum(0, np.diff(self._edges) - block_size)
        # The index of each document's first window, and the number of windows.
        self._firsts = np.concatenate([[0], np.cumsum(1 + -(-overhang // self._stride))])

    def batches(self, batch_size: int) -> Iterator[WindowRows]:
        """Yield all windows, at most `batch_size` at a time. Those of equal length come together: less padding."""
        n_windows, step = int(self._firsts[-1]), max(1, _BLOCK // batch_size) * batch_size
        for first in range(0, n_windows, step):
            rows = self._rows(np.arange(first, min(first + step, n_windows)))
            rows = rows[np.argsort(-rows[:, 1], kind="stable")]
            changes = np.flatnonzero(np.diff(rows[:, 1])) + 1
            for part in [rows] if self._padding else np.split(rows, changes):
                yield from np.split(part, range(batch_size, len(part), batch_size))

    def read(self, start: int, length: int) -> Ids:
        """Return the inputs of a window and the target of its last one: (length + 1,)."""
        stored = min(length + 1, self._tokens.n_tokens - start)
        ids = self._tokens.read(start, stored)
        return ids if stored > length else np.append(ids, np.asarray(self._end, ids.dtype))

    def _rows(self, indices: npt.NDArray[np.int64]) -> WindowRows:
        """Return the windows with these indices, which count through all documents: (n,) -> (n, 3)."""
        document = np.searchsorted(self._firsts, indices, "right") - 1
        within = indices - self._firsts[document]
        starts = self._edges[document] + within * self._stride
        lengths = np.minimum(self._block_size, self._edges[document + 1] - starts)
        skips = np.where(within > 0, self._block_size - self._stride, 0)
        return np.stack([starts, lengths, skips], axis=1)


def _edges(tokens: Tokens, end: int | None) -> npt.NDArray[np.int64]:
    """Return the edges of documents: d has the inputs edges[d] .. edges[d + 1] - 1, each with the next id as target."""
    if end is None:
        return np.array([0, tokens.n_tokens - 1])
    return np.unique(np.concatenate([[0], find_id(tokens, end), [tokens.n_tokens]]))


def eval_batches(
    windows: EvalWindows, batch_size: int, *, first: int = 0, every: int = 1
) -> Iterator[tuple[WindowRows, Batch]]:
    """Yield the windows of a text, `batch_size` at a time, with x, y, each (<= batch_size, longest window) int64.

    Yields only every `every`-th batch from `first` on. Padding of shorter windows, and tokens already scored in an
    earlier window, have the target IGNORE_INDEX.
    """
    for rows in itertools.islice(windows.batches(batch_size), first, None, every):
        shape = len(rows), int(rows[:, 1].max())
        x, y = np.zeros(shape, np.int64), np.full(shape, IGNORE_INDEX, np.int64)
        for row, (start, length, skip) in enumerate(rows.tolist()):
            ids = windows.read(start, length)
            x[row, :length], y[row, skip:length] = ids[:-1], ids[skip + 1 :]
        yield rows, (torch.from_numpy(x), torch.from_numpy(y))
