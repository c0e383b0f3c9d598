"""The share of the validation text that is also in the training text: strings of LENGTH bytes, sampled by content.

A string is chosen by a hash of its first 32 bytes, and kept if the hash of the whole is small. So each split is sampled
on its own, in one pass, and a string in both is chosen in both or in neither. The first hash is computed at every place
of the text and so is a single byte: of such, a core computes 32 at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt
from pydantic import Field

from gptlite.seeds import splitmix64

LENGTH = 50  # bytes

_SMALL_TEXT = 1 << 21  # bytes: every string of a smaller text is a candidate
_CANDIDATES = 1 << 19  # strings of a larger text
_MAX_SHARE = 256  # at most one of so many; the first hash has no more values
_LIMIT = 1 << 18  # hashes that are kept per split
_WORD_PLACES = np.array([*range(0, LENGTH - 8, 8), LENGTH - 8])  # in a string: words of eight bytes that cover it
_MULTIPLIERS = splitmix64(np.arange(len(_WORD_PLACES), dtype=np.uint64)) | np.uint64(1)
_HALVES = (1, 2, 4, 8, 16)  # bytes; twice the last are hashed to choose a string
_BYTE_MULTIPLIERS = _MULTIPLIERS[: len(_HALVES)].astype(np.uint8)
_CHOSEN = np.uint8(77)  # the first of the hashes that choose a string; not 0, which runs of one byte often have
_SEPARATOR = b"\xff"  # not a byte of UTF-8
_NONE = np.zeros(0, np.uint64)

Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Overlap:
    """Of `sampled` different strings in the validation text, `found` are in the training text, too."""

    sampled: Annotated[int, Field(ge=0)]
    found: Annotated[int, Field(ge=0)]


def choose_share(total_bytes: int) -> int:
    """One of how many strings is chosen from a corpus of this size."""
    return 1 if total_bytes < _SMALL_TEXT else min(total_bytes // _CANDIDATES, _MAX_SHARE)


def sample(texts: Sequence[bytes], share: int) -> Hashes:
    """The hashes of the strings that are chosen from some texts, about one of `share`: (n,)."""
    text = _SEPARATOR.join([*texts, b""])
    at = _choose(text, share)
    if len(texts) > 1:
        ends = np.cumsum([len(each) + len(_SEPARATOR) for each in texts]) - len(_SEPARATOR)
        at = at[at + LENGTH <= ends[np.searchsorted(ends, at)]]
    return _hash(text, at)


def _choose(text: bytes, share: int) -> npt.NDArray[np.int64]:
    """The places of strings whose first bytes have one of 256 / `share` hashes: (n,)."""
    places = max(len(text) - len(_SEPARATOR) - LENGTH + 1, 0)
    if share == 1 or not places:
        return np.arange(places)
    hashes = np.frombuffer(text, np.uint8, places + sum(_HALVES))
    for half, multiplier in zip(_HALVES, _BYTE_MULTIPLIERS, strict=True):
        hashes = hashes[:-half] * multiplier + hashes[half:]
    return np.flatnonzero(hashes - _CHOSEN < 256 // share)


def _hash(text: bytes, at: npt.NDArray[np.int64]) -> Hashes:
    """A hash of the LENGTH bytes from each place on, (n,)."""
    if not len(at):
        return _NONE
    words = np.ndarray((len(text) - 7,), "<u8", text, strides=(1,))  # the eight bytes from each place on
    return _mix(words[at[:, None] + _WORD_PLACES] @ _MULTIPLIERS)


def _mix(hashes: Hashes) -> Hashes:
    """Numbers whose upper bits depend on all bits."""
    mixed: Hashes = (hashes ^ hashes >> np.uint64(32)) * _MULTIPLIERS[1]
    return mixed


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
        place = np.searchsorted(known, sampled)  # np.isin takes seventy times as long
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
        kept = kept[np.diff(kept, prepend=~kept[:1]) != 0]  # np.unique takes forty times as long
        while len(kept) > _LIMIT:
            self.bound >>= np.uint64(1)
            kept = kept[kept <= self.bound]
        self._added, self._size = [kept], len(kept)
        return kept
