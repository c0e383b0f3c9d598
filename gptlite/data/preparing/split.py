"""The validation split, decided from the documents' content before they become tokens.

Its target size is `val_fraction` of all bytes, and at most `val_max_bytes`. There are these rules:

    tail of the document       for a single document: its last part, from the byte at 1 - val_fraction of its length
    whole documents by hash    a document is validation if its hash, a number in [0, 1), is below a threshold:
                               val_fraction, or less if the documents would exceed val_max_bytes. Independent of
                               their order, and equal documents are on the same side
    tail of each document      if the rule above would give less than half or more than twice the target (few or very
                               unequal documents), or leave nothing to train on

    given                      where data.val_source names the validation text: all of it, and nothing else

A cut inside a character moves forward to the next one, so a tail never exceeds its target.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from gptlite.data.dataset.manifest import RuleName, SplitRule


@dataclass(frozen=True, eq=False)
class SplitPlan:
    """The rule, and for each document how many of its first bytes are for training, before moving to a character."""

    rule: SplitRule
    cuts: npt.NDArray[np.int64]

    def parts(self, index: int, text: bytes, *, before: int = 0) -> tuple[bytes, bytes]:
        """Return the training and the validation part of document `index`. Joined, they are `text`.

        before: bytes of the document before `text`, if that is a piece of it. Pieces are cut between characters.
        """
        cut = character_boundary(text, max(int(self.cuts[index]) - before, 0))
        return text[:cut], text[cut:]


def document_hashes(digests: npt.NDArray[np.void]) -> npt.NDArray[np.float64]:
    """Return a number in [0, 1) for each sha256 of a UTF-8 text: its first 53 bits, as an exact float."""
    first = digests.view(">u8").reshape(len(digests), -1)[:, 0]
    return (first >> 11) / 2**53


def character_boundary(text: bytes, at: int) -> int:
    """Return the first position from `at` on that is not inside a character of UTF-8 text.

    >>> character_boundary("aé".encode(), 2)
    3
    """
    while at < len(text) and text[at] & 0xC0 == 0x80:
        at += 1
    return at


def plan_split(
    hashes: npt.NDArray[np.float64], sizes: npt.NDArray[np.int64], val_fraction: float, val_max_bytes: int
) -> SplitPlan:
    """Plan the split of documents with these hashes and sizes in bytes, both (n,), n >= 1."""
    fraction = Fraction(repr(val_fraction))  # the decimal as written: 0.1 means a tenth
    total = int(sizes.sum())
    target = min(fraction * total, Fraction(val_max_bytes))
    tail = target / total

    def plan(rule: RuleName, threshold: float, cuts: npt.NDArray[np.int64]) -> SplitPlan:
        return SplitPlan(SplitRule(rule, threshold, val_fraction, val_max_bytes), cuts)

    if len(sizes) == 1:
        cut = max(int((1 - fraction) * total), total - val_max_bytes)
        return plan("tail_of_the_document", float(tail), np.array([cut], np.int64))

    threshold = _hash_threshold(hashes, sizes, val_fraction, val_max_bytes)
    is_val = hashes < threshold
    val_bytes = int(sizes[is_val].sum())
    if target / 2 <= val_bytes <= target * 2 and not is_val.all():
        return plan("document_hash", threshold, np.where(is_val, 0, sizes))

    cuts = np.array([size - int(tail * size) for size in sizes.tolist()], np.int64)
    return plan("tail_of_each_document", float(tail), cuts)


def _hash_threshold(
    hashes: npt.NDArray[np.float64], sizes: npt.NDArray[np.int64], val_fraction: float, val_max_bytes: int
) -> float:
    """Return the largest threshold up to val_fraction below which the documents have at most val_max_bytes."""
    below = hashes < val_fraction
    distinct, group = np.unique(hashes[below], return_inverse=True)  # equal documents share a hash
    group_bytes = np.zeros(len(distinct), np.int64)
    np.add.at(group_bytes, group, sizes[below])
    too_much = np.flatnonzero(np.cumsum(group_bytes) > val_max_bytes)
    return float(distinct[too_much[0]]) if len(too_much) else val_fraction
