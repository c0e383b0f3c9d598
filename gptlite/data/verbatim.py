"""How much of some short passages stands word for word in a text that may be far longer than memory. Exact.

Both sides are bytes. A piece of the text is compared with all passages at once: of every place in the piece and every
place in a passage it is known which string of L bytes begins there, by a number, equal for equal strings. From L to
L + 1 these become the numbers of the pairs (number, next byte), and only places stay that have a partner on the other
side. A hash only drops most places of the text before the first comparison, so nothing has to be verified.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

SHORTEST = 20  # characters: shorter stretches are not looked for

_WORD = 8  # bytes of a number of 64 bits
_END = b"\xfe"  # behind every passage; UTF-8 has no such byte
_TABLE_BITS = 20
_ODD = np.uint64(0x9E3779B97F4A7C15)

Numbers = npt.NDArray[np.integer[Any]]


class VerbatimSearch:
    """Feed it a text piece by piece; for every place of some passages it keeps how much from there on stands in it.

    What must not be matched across, such as the joint of two documents, is b"\\xff" in the text.
    """

    def __init__(self, passages: Sequence[str]) -> None:
        self._passages = [passage.encode() for passage in passages]
        self._longest = max(map(len, self._passages), default=0)
        self._joined = b"".join(passage + _END for passage in self._passages)
        self._lengths = np.zeros(len(self._joined), np.int64)
        self._tail = b""

    def feed(self, text: bytes) -> None:
        """The next piece."""
        text = self._tail + text
        self._tail = text[max(0, len(text) - self._longest) :]  # where a match that goes on may have begun
        piece, passages = np.frombuffer(text, np.uint8), np.frombuffer(self._joined, np.uint8)
        ours: Numbers = _first_bytes(self._joined)
        theirs: Numbers = _first_bytes(text)
        at, place, length = _perhaps_in(ours, theirs), np.arange(len(ours)), _WORD
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
        """For each passage and each of its bytes: how many bytes from there on stand in the text.

        Exact from SHORTEST on; where fewer do, it is some smaller number.
        """
        ends = accumulate(len(passage) + len(_END) for passage in self._passages)
        return [
            self._lengths[end - len(_END) - len(passage) : end - len(_END)]
            for end, passage in zip(ends, self._passages, strict=True)
        ]


def stretches(passage: str, lengths: npt.NDArray[np.int64]) -> list[tuple[int, int]]:
    """The stretches (start, stop) of a passage, in characters, that stand in the text and in no longer one that does.

    lengths: of this passage. Stretches below SHORTEST are left out.
    """
    borders = [0, *accumulate(len(character.encode()) for character in passage)]
    found: list[tuple[int, int]] = []
    furthest = 0
    for start, place in enumerate(borders[:-1]):
        stop = bisect_right(borders, place + lengths[place]) - 1  # a character that was met in part does not count
        if stop > furthest and stop - start >= SHORTEST:
            found.append((start, stop))
            furthest = stop
    return found


def covered(found: Sequence[tuple[int, int]]) -> int:
    """How many characters lie in at least one of the stretches of a passage."""
    furthest = [0, *(stop for _, stop in found)]
    return sum(stop - max(start, before) for (start, stop), before in zip(found, furthest, strict=False))


def _first_bytes(text: bytes) -> npt.NDArray[np.uint64]:
    """The _WORD bytes from every place on, as one number: (len(text) - _WORD + 1,)."""
    return np.ndarray(max(0, len(text) - _WORD + 1), "<u8", text, strides=(1,)).copy()


def _perhaps_in(known: Numbers, numbers: Numbers) -> npt.NDArray[np.intp]:
    """Places of the text from which on SHORTEST bytes stand in a passage, and of few others."""
    table = np.zeros(1 << _TABLE_BITS, bool)
    table[_slots(known)] = True
    return np.flatnonzero(table[_slots(numbers)])


def _slots(numbers: Numbers) -> Numbers:
    """A place in the table for the first and the last _WORD of SHORTEST bytes."""
    step = SHORTEST - _WORD
    mixed = numbers[: max(0, len(numbers) - step)] * _ODD + numbers[step:]
    return mixed * _ODD >> np.uint64(64 - _TABLE_BITS)  # the upper bits of the product depend on all others
