"""Which part of the text is kept for validation, decided on the documents' content before they become tokens.

The share asked for is `val_fraction` of all bytes, and at most `val_max_bytes`. Three rules, tried in this order:

    tail of the document       the only document: its last part, from the byte at 1 - val_fraction of its length
    whole documents by hash    a document is validation if its hash, a fraction in [0, 1), falls below a threshold:
                               val_fraction, or less where the documents would exceed val_max_bytes. Independent of
                               their order, and equal documents stay on one side
    tail of each document      where the rule before would give less than half or more than twice the share (few or
                               very unequal documents), or leave nothing to train on

A cut that falls inside a character moves forward to the next one, so a tail never exceeds its share.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
import numpy.typing as npt

RuleName = Literal["document_hash", "tail_of_each_document", "tail_of_the_document"]
SplitName = Literal["train", "val"]


@dataclass(frozen=True)
class SplitRule:
    """How the text was split: what the manifest says about it."""

    rule: RuleName
    threshold: float  # hashes below it are validation; for tails, the share of each document
    val_fraction: float
    val_max_bytes: int


@dataclass(frozen=True, eq=False)
class SplitPlan:
    """The rule, and for every document how many of its first bytes are for training (before moving off a character)."""

    rule: SplitRule
    cuts: npt.NDArray[np.int64]

    def parts(self, index: int, text: bytes) -> tuple[bytes, bytes]:
        """The training and the validation part of document `index`; either may be empty, together they are `text`."""
        cut = character_boundary(text, int(self.cuts[index]))
        return text[:cut], text[cut:]


def document_hash(text: bytes) -> float:
    """A document's place in [0, 1): the first 53 bits of the sha256 of its UTF-8 text, which a float holds exactly."""
    first = int.from_bytes(hashlib.sha256(text).digest()[:8], "big")
    return float((first >> 11) / 2**53)


def character_boundary(text: bytes, at: int) -> int:
    """The first position from `at` on where UTF-8 text can be cut: `at` itself unless it is inside a character.

    >>> character_boundary("aé".encode(), 2)
    3
    """
    while at < len(text) and text[at] & 0xC0 == 0x80:
        at += 1
    return at


def plan_split(
    hashes: npt.NDArray[np.float64], sizes: npt.NDArray[np.int64], val_fraction: float, val_max_bytes: int
) -> SplitPlan:
    """Split documents with these hashes and sizes in bytes, both (n,), n >= 1."""
    fraction = Fraction(repr(val_fraction))  # the decimal that was written: 0.1 means a tenth
    total = int(sizes.sum())
    share = min(fraction * total, Fraction(val_max_bytes))
    tail = share / total

    def plan(rule: RuleName, threshold: float, cuts: npt.NDArray[np.int64]) -> SplitPlan:
        return SplitPlan(SplitRule(rule, threshold, val_fraction, val_max_bytes), cuts)

    if len(sizes) == 1:
        cut = max(int((1 - fraction) * total), total - val_max_bytes)
        return plan("tail_of_the_document", float(tail), np.array([cut], np.int64))

    threshold = _hash_threshold(hashes, sizes, val_fraction, val_max_bytes)
    is_val = hashes < threshold
    val_bytes = int(sizes[is_val].sum())
    if share / 2 <= val_bytes <= share * 2 and not is_val.all():
        return plan("document_hash", threshold, np.where(is_val, 0, sizes))

    cuts = np.array([size - int(tail * size) for size in sizes.tolist()], np.int64)
    return plan("tail_of_each_document", float(tail), cuts)


def _hash_threshold(
    hashes: npt.NDArray[np.float64], sizes: npt.NDArray[np.int64], val_fraction: float, val_max_bytes: int
) -> float:
    """The largest threshold up to val_fraction below which documents hold at most val_max_bytes."""
    below = hashes < val_fraction
    distinct, group = np.unique(hashes[below], return_inverse=True)  # equal documents share a hash
    group_bytes = np.zeros(len(distinct), np.int64)
    np.add.at(group_bytes, group, sizes[below])
    too_much = np.flatnonzero(np.cumsum(group_bytes) > val_max_bytes)
    return float(distinct[too_much[0]]) if len(too_much) else val_fraction
