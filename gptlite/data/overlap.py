"""How much of the validation text is in the training text, too: strings of LENGTH bytes, a sample chosen by content.

A string is chosen by a hash of its first four bytes, and kept if the hash of the whole is small. So each split is
sampled on its own, in one pass, and a string in both is chosen in both or in neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt
from pydantic import Field

LENGTH = 50  # bytes

_SMALL_TEXT = 1 << 21  # bytes: every string of a smaller text is a candidate
_MAX_SHARE = 64  # of a large text, about one of so many
_LIMIT = 1 << 20  # hashes that are kept per split
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_SEPARATOR = b"\xff"  # not a byte of UTF-8
_NONE = np.zeros(0, np.uint64)

Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Overlap:
    """Of `sampled` different strings in the validation text, `found` are in the training text, too."""

    sampled: Annotated[int, Field(ge=0)]
    found: Annotated[int, Field(ge=0)]


def sample(texts: Sequence[str], total_bytes: int) -> Hashes:
    """The hashes of the strings that are chosen from some texts, (n,). total_bytes: the size of the whole corpus."""
    text = _SEPARATOR.join(each.encode() for each in texts) + _SEPARATOR
    at = _candidates(text, min(1 + total_bytes // _SMALL_TEXT, _MAX_SHARE))
    ends = np.flatnonzero(np.frombuffer(text, np.uint8) == _SEPARATOR[0])
    at = at[at + LENGTH <= ends[np.searchsorted(ends, at)]]
    words = np.ndarray(max(0, len(text) - 7), "<u8", text, strides=(1,))  # the eight bytes from each place on
    hashes = np.zeros(len(at), np.uint64)
    for offset in (*range(0, LENGTH - 8, 8), LENGTH - 8):
        hashes = (hashes ^ words[at + offset]) * _MULTIPLIER
        hashes ^= hashes >> np.uint64(32)
    return hashes


def _candidates(text: bytes, share: int) -> npt.NDArray[np.int64]:
    """The places with room for a string whose first four bytes have a hash below one `share`-th, (n,)."""
    last = len(text) - LENGTH
    if share == 1:
        return np.arange(max(0, last + 1))
    found = [np.zeros(0, np.int64)]
    for offset in range(min(4, last + 1)):
        words = np.frombuffer(text, "<u4", (last - offset) // 4 + 1, offset).copy()  # aligned, which is faster
        words *= np.uint32(0x9E3779B1)
        found.append(np.flatnonzero(words <= np.uint32(0xFFFFFFFF // share)) * 4 + offset)
    return np.concatenate(found)


class OverlapMeter:
    """Collects the samples of both splits, in any order. Its memory does not grow with the text."""

    def __init__(self) -> None:
        self._samples = {"train": _Smallest(), "val": _Smallest()}

    def add(self, split: str, hashes: Hashes) -> None:
        """Add what `sample` chose from some text of a split."""
        self._samples[split].add(hashes)

    def finish(self) -> Overlap:
        """The overlap of what was added."""
        train, val = self._samples["train"], self._samples["val"]
        known, sampled = train.smallest(), val.smallest()
        bound = min(train.bound, val.bound)
        known, sampled = known[known <= bound], sampled[sampled <= bound]
        place = np.searchsorted(known, sampled)  # np.isin takes ten times as long
        inside = place < len(known)
        return Overlap(len(sampled), int((known[place[inside]] == sampled[inside]).sum()))


class _Smallest:
    """The different hashes up to a bound, which halves whenever they are more than _LIMIT."""

    def __init__(self) -> None:
        self.bound = np.uint64(0xFFFFFFFFFFFFFFFF)
        self._added: list[Hashes] = []
        self._size = 0

    def add(self, hashes: Hashes) -> None:
        kept = hashes[hashes <= self.bound]
        self._added.append(kept)
        self._size += len(kept)
        if self._size > 2 * _LIMIT:
            self.smallest()

    def smallest(self) -> Hashes:
        """All up to the bound, in order."""
        kept: Hashes = np.sort(np.concatenate([_NONE, *self._added]))
        kept = kept[np.diff(kept, prepend=~kept[:1]) != 0]  # np.unique takes ten times as long
        while len(kept) > _LIMIT:
            self.bound >>= np.uint64(1)
            kept = kept[kept <= self.bound]
        self._added, self._size = [kept], len(kept)
        return kept
