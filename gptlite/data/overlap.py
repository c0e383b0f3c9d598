"""How much of the validation text is in the training text, too: strings of LENGTH bytes, a sample chosen by content.

A string is chosen by its first byte and a hash of its first eight, and kept if the hash of the whole is small. So each
split is sampled on its own, in one pass, and a string in both is chosen in both or in neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view
from pydantic import Field

from gptlite.seeds import splitmix64

LENGTH = 50  # bytes

_SMALL_TEXT = 1 << 21  # bytes: every string of a smaller text is a candidate
_MAX_SHARE = 1024  # of a large text, about one of so many
_OFTEN = 64  # one byte of so many, or more, is the one that strings begin with
_LIMIT = 1 << 18  # hashes that are kept per split
_WORDS = -(-LENGTH // 8)  # of eight bytes
_MULTIPLIERS = splitmix64(np.arange(_WORDS, dtype=np.uint64)) | np.uint64(1)
_SEPARATOR = b"\xff"  # not a byte of UTF-8
_NONE = np.zeros(0, np.uint64)

Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Overlap:
    """Of `sampled` different strings in the validation text, `found` are in the training text, too."""

    sampled: Annotated[int, Field(ge=0)]
    found: Annotated[int, Field(ge=0)]


@dataclass(frozen=True)
class Sampler:
    """Chooses strings. first: the byte that they begin with; bound: the largest hash of their first eight bytes.

    Without them every string is chosen.
    """

    first: int | None = None
    bound: int = 0

    @classmethod
    def of(cls, texts: Sequence[bytes], total_bytes: int) -> Sampler:
        """A sampler for about one string of a share that falls with the size of the corpus. texts: some of it."""
        share = min(1 + total_bytes // _SMALL_TEXT, _MAX_SHARE)
        counts = np.bincount(np.frombuffer(b"".join(texts), np.uint8), minlength=256)
        if share == 1 or not counts.any():
            return cls()
        often = np.flatnonzero(counts * min(share, _OFTEN) >= counts.sum())
        first = int(often[counts[often].argmin()])
        expected = int(counts[first]) * share / int(counts.sum())  # of strings for each that is wanted
        return cls(first, min(2**64 - 1, int(2**64 / max(1.0, expected))))

    def choose(self, texts: Sequence[bytes]) -> Hashes:
        """The hashes of the strings that are chosen from some texts, (n,)."""
        text = _SEPARATOR.join([*texts, b""])
        raw = np.frombuffer(text, np.uint8)
        last = len(raw) - len(_SEPARATOR) - LENGTH
        at = np.arange(last + 1) if self.first is None else np.flatnonzero(raw[: max(0, last + 1)] == self.first)
        if len(texts) > 1:
            ends = np.cumsum([len(each) + len(_SEPARATOR) for each in texts]) - len(_SEPARATOR)
            at = at[at + LENGTH <= ends[np.searchsorted(ends, at)]]
        if self.first is not None and len(at):
            begin = np.ndarray(len(raw) - 7, "<u8", text, strides=(1,))[at]  # eight bytes as a number
            at = at[_mix(begin * _MULTIPLIERS[0]) <= np.uint64(self.bound)]
        return _hash(raw, at)


def _hash(raw: npt.NDArray[np.uint8], at: npt.NDArray[np.int64]) -> Hashes:
    """A hash of the LENGTH bytes from each place on, (n,)."""
    if not len(at):
        return _NONE
    strings = np.zeros((len(at), _WORDS * 8), np.uint8)
    strings[:, :LENGTH] = sliding_window_view(raw, LENGTH)[at]
    return _mix((strings.view("<u8") * _MULTIPLIERS).sum(1, dtype=np.uint64))


def _mix(hashes: Hashes) -> Hashes:
    """Numbers whose upper bits depend on all bits."""
    mixed: Hashes = (hashes ^ hashes >> np.uint64(32)) * _MULTIPLIERS[1]
    return mixed


class OverlapMeter:
    """Collects the samples of both splits, in any order. Its memory does not grow with the text."""

    def __init__(self) -> None:
        self._samples = {"train": _Smallest(), "val": _Smallest()}

    def add(self, split: str, hashes: Hashes) -> None:
        """Add what a sampler chose from some text of a split."""
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
