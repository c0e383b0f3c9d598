"""Finds the parts of short passages that occur verbatim in a text, which may be much larger than memory. Exact.

Both sides are bytes. Each piece of the text is compared with all passages at once. For a length L, every position in
the piece and in the passages has a number for the L bytes that begin there; equal strings have equal numbers. For
L + 1, the pairs (number, next byte) are numbered, and only positions with a match on the other side are kept. A hash
removes most positions of the text before the first comparison; the comparisons themselves are exact.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

SHORTEST = 20  # characters: shorter matches are not searched for

_WORD = 8  # bytes in a 64-bit number
_END = b"\xfe"  # ends every passage; not a byte of UTF-8
_TABLE_BITS = 20
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)

Numbers = npt.NDArray[np.integer[Any]]


class VerbatimSearch:
    """Finds passages in a text that is fed piece by piece.

    The byte b"\\xff" in the text separates documents, so that nothing is matched across two of them.
    """

    def __init__(self, passages: Sequence[str]) -> None:
        self._passages = [passage.encode() for passage in passages]
        self._longest = max(map(len, self._passages), default=0)
        self._joined = b"".join(passage + _END for passage in self._passages)
        self._lengths = np.zeros(len(self._joined), np.int64)
        self._tail = b""

    def feed(self, text: bytes) -> None:
        """Search the next piece of the text."""
        text = self._tail + text
        self._tail = text[max(0, len(text) - self._longest) :]  # a match that continues may begin here
        piece, passages = np.frombuffer(text, np.uint8), np.frombuffer(self._joined, np.uint8)
        ours: Numbers = _first_bytes(self._joined)
        theirs: Numbers = _first_bytes(text)
        at, place, length = _find_candidates(ours, theirs), np.arange(len(ours)), _WORD
        theirs = theirs[at]
        while len(at) and len(place):
            known = np.unique(ours)
            rank = np.searchsorted(known, theirs)
            rank[rank == len(known)] = 0
            met = known[rank] == theirs
            at, theirs = at[met], rank[met]
            ours = np.searchsorted(known, ours)
            met = np.isin(ours, theirs)
            place, ours = place[met], ours[met]
            self._lengths[place] = np.maximum(self._lengths[place], length)
            inside = at + length < len(piece)
            at, theirs = at[inside], theirs[inside]
            theirs, ours = theirs << 8 | piece[at + length], ours << 8 | passages[place + length]
            length += 1

    def lengths(self) -> list[npt.NDArray[np.int64]]:
        """For each passage and each of its bytes: how many bytes from there on occur together in the text.

        Lengths of SHORTEST or more are exact; others are some number below SHORTEST.
        """
        ends = accumulate(len(passage) + len(_END) for passage in self._passages)
        return [
            self._lengths[end - len(_END) - len(passage) : end - len(_END)]
            for end, passage in zip(ends, self._passages, strict=True)
        ]


def stretches(passage: str, lengths: npt.NDArray[np.int64]) -> list[tuple[int, int]]:
    """The longest parts (start, stop) of a passage, in characters, that occur in the text, from SHORTEST on.

    lengths: those of this passage.
    """
    borders = [0, *accumulate(len(character.encode()) for character in passage)]
    found: list[tuple[int, int]] = []
    furthest = 0
    for start, place in enumerate(borders[:-1]):
        stop = (
            bisect_right(borders, place + lengths[place]) - 1
        )  # a character of which only a part matches does not count
        if stop > furthest and stop - start >= SHORTEST:
            found.append((start, stop))
            furthest = stop
    return found


def covered(found: Sequence[tuple[int, int]]) -> int:
    """The number of characters in at least one of the stretches of a passage."""
    furthest = [0, *(stop for _, stop in found)]
    return sum(stop - max(start, before) for (start, stop), before in zip(found, furthest, strict=False))


def _first_bytes(text: bytes) -> npt.NDArray[np.uint64]:
    """The _WORD bytes from every position on, as one number: (len(text) - _WORD + 1,)."""
    return np.ndarray(max(0, len(text) - _WORD + 1), "<u8", text, strides=(1,)).copy()


def _find_candidates(known: Numbers, numbers: Numbers) -> npt.NDArray[np.intp]:
    """All positions of the text whose SHORTEST bytes occur in a passage, and few others."""
    table = np.zeros(1 << _TABLE_BITS, bool)
    table[_hash(known)] = True
    return np.flatnonzero(table[_hash(numbers)])


def _hash(numbers: Numbers) -> Numbers:
    """The hash of the first and the last _WORD of SHORTEST bytes."""
    step = SHORTEST - _WORD
    mixed = numbers[: max(0, len(numbers) - step)] * _MULTIPLIER + numbers[step:]
    return mixed * _MULTIPLIER >> np.uint64(64 - _TABLE_BITS)  # the upper bits of the product depend on all others
