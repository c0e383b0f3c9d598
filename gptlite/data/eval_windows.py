"""In which windows a text is scored: each token once, after what stands before it in its own document.

A document begins at the first id and at every end-of-text. Of n ids it has n - 1 that stand behind another; where texts
end, the end-of-text behind it is scored too, also behind the last one, where none is stored. So no document sees
another, and their order cannot matter.

A document with I inputs is cut into windows of at most T of them, which start S apart (S = T: side by side):
window k takes inputs k S .. k S + T - 1 and scores those behind its first T - S, the first window all of its own. So a
token is scored in the first window that reaches it, after at least T - S tokens where the document has them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from gptlite.data.tokens import Ids, Tokens, check_scorable
from gptlite.errors import ConfigError

WindowRows = npt.NDArray[np.int64]  # (n, 3), a window each: place of its first input, inputs, how many of them to skip

_PIECE = 1 << 22  # ids that are searched for end-of-text at a time
_SLAB = 1 << 16  # windows that are laid out at a time


class EvalWindows:
    """The windows of a text. end: its end-of-text id where it is documents; None where it is a single one.

    What it keeps grows with the number of documents alone. DataError for fewer than two tokens, ConfigError for a
    stride outside 1 .. block_size (None: block_size).
    """

    def __init__(self, tokens: Tokens, block_size: int, *, stride: int | None = None, end: int | None = None) -> None:
        check_scorable(tokens)
        if stride is not None and not 1 <= stride <= block_size:
            raise ConfigError(
                f"the stride is {stride}; it must be from 1 to model.block_size ({block_size})", where="stride"
            )
        self._tokens, self._end = tokens, end
        self._block_size, self._stride = block_size, stride or block_size
        self._edges = _edges(tokens, end)
        overhang = np.maximum(0, np.diff(self._edges) - block_size)
        # The number of each document's first window, and how many windows there are.
        self._firsts = np.concatenate([[0], np.cumsum(1 + -(-overhang // self._stride))])

    def batches(self, batch_size: int) -> Iterator[WindowRows]:
        """All windows, `batch_size` at a time; those of a length together, so that filling them up costs little."""
        n_windows, step = int(self._firsts[-1]), max(1, _SLAB // batch_size) * batch_size
        for first in range(0, n_windows, step):
            plan = self._plan(np.arange(first, min(first + step, n_windows)))
            plan = plan[np.argsort(-plan[:, 1], kind="stable")]
            yield from np.split(plan, range(batch_size, len(plan), batch_size))

    def read(self, start: int, length: int) -> Ids:
        """The inputs of a window and the target of the last one: (length + 1,)."""
        stored = min(length + 1, self._tokens.n_tokens - start)
        ids = self._tokens.read(start, stored)
        return ids if stored > length else np.append(ids, np.asarray(self._end, ids.dtype))

    def _plan(self, numbers: npt.NDArray[np.int64]) -> WindowRows:
        """The windows of these numbers, counted through all documents: (n,) -> (n, 3)."""
        document = np.searchsorted(self._firsts, numbers, "right") - 1
        within = numbers - self._firsts[document]
        starts = self._edges[document] + within * self._stride
        lengths = np.minimum(self._block_size, self._edges[document + 1] - starts)
        skips = np.where(within > 0, self._block_size - self._stride, 0)
        return np.stack([starts, lengths, skips], axis=1)


def _edges(tokens: Tokens, end: int | None) -> npt.NDArray[np.int64]:
    """Document d has its inputs at edges[d] .. edges[d + 1] - 1; the target of each is one later."""
    if end is None:
        return np.array([0, tokens.n_tokens - 1])
    pieces = range(0, tokens.n_tokens, _PIECE)
    found = [at + np.flatnonzero(tokens.read(at, min(_PIECE, tokens.n_tokens - at)) == end) for at in pieces]
    return np.unique(np.concatenate([[0], *found, [tokens.n_tokens]]))
