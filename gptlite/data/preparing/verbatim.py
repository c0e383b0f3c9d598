"""Finds the parts of short passages that occur verbatim in a text, which may be much larger than memory.

Every window of SHORTEST characters of the passages is searched for by its hash of 64 bits. A character is copied if a
window around it occurs in the text.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

SHORTEST = 20  # characters: shorter matches are not searched for

_TABLE_SHIFT = np.uint64(64 - 20)
_MULTIPLIERS = [np.uint64(0x9E3779B97F4A7C15 + 2 * i) for i in range(SHORTEST)]


class VerbatimSearch:
    """Finds passages in a text that is fed piece by piece.

    The byte b"\\xff" in the text separates documents, so that nothing is matched across two of them.
    """

    def __init__(self, passages: Sequence[str]) -> None:
        self._windows = [_hash_windows(_code_points(passage)) for passage in passages]
        self._known = np.unique(np.concatenate([np.zeros(0, np.uint64), *self._windows]))
        self._is_found = np.zeros(len(self._known), bool)
        self._table = np.zeros(1 << 20, bool)  # by the upper bits of a hash, which leaves few windows of the text
        self._table[self._known >> _TABLE_SHIFT] = True
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._tail = _code_points("")

    def feed(self, text: bytes) -> None:
        """Search the next piece of the text."""
        points = np.concatenate([self._tail, _code_points(self._decoder.decode(text))])
        self._tail = points[max(0, len(points) - SHORTEST + 1) :]
        hashes = _hash_windows(points)
        self._is_found |= np.isin(self._known, hashes[self._table[hashes >> _TABLE_SHIFT]])

    def spans(self) -> list[list[tuple[int, int]]]:
        """Return for each passage its copied parts (start, stop), in characters. Windows that meet are one part."""
        found = []
        for windows in self._windows:
            starts = np.flatnonzero(self._is_found[np.searchsorted(self._known, windows)])
            copied = np.unique(starts[:, None] + np.arange(SHORTEST))
            runs = np.split(copied, np.flatnonzero(np.diff(copied) > 1) + 1)
            found.append([(int(run[0]), int(run[-1]) + 1) for run in runs if len(run)])
        return found


def _code_points(text: str) -> npt.NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")


def _hash_windows(points: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint64]:
    """Return a hash of each window: (n - SHORTEST + 1,)."""
    hashes = np.zeros(max(0, len(points) - SHORTEST + 1), np.uint64)
    for place, multiplier in enumerate(_MULTIPLIERS):
        hashes = (hashes ^ points[place : place + len(hashes)]) * multiplier
    return hashes
