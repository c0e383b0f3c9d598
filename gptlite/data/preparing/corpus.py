"""The documents of all sources and their split, read in several passes with one piece of text in memory at a time.

The validation split is decided from the documents' content before they become tokens. Its target size is
`val_fraction` of all bytes, and at most `val_max_bytes`. There are these rules:

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

import hashlib
import itertools
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from gptlite.data.dataset.manifest import SPLITS, RuleName, SplitName, SplitRule
from gptlite.data.sources.documents import Document, Skipped
from gptlite.data.sources.sources import Source
from gptlite.errors import DataError
from gptlite.formatting import counted
from gptlite.tokenizers.char import CharacterSet

_LONGEST = 3  # documents that are named
_DIGEST_BYTES = 16  # of a document's sha256, enough to tell documents apart
_CHARACTER_BYTES = 4  # at most, in UTF-8


@dataclass(frozen=True)
class Part:
    """Some text of a document in UTF-8. begins: whether the document's part of this split begins with it.

    forced: whether it was cut at its end where that may change ids, for want of another place.
    """

    begins: bool
    text: bytes
    forced: bool = False


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


@dataclass(frozen=True, eq=False)
class Corpus:
    """The result of a first pass over the text: the sizes of the documents and the split that follows from them.

    files, text_bytes: per source. skipped: what had no text. kept: for each document that the
    sources have, whether it is one of the corpus; sizes: of those that are, in bytes. copies: documents of the corpus
    that equal an earlier one. withheld: documents of data.source that are left out, because data.val_source has them.
    characters: all that occur, in order. longest: the places and sizes of the longest documents,
    longest first.
    """

    sources: tuple[Source, ...]
    files: tuple[int, ...]
    text_bytes: tuple[int, ...]
    skipped: Skipped
    plan: SplitPlan
    sizes: npt.NDArray[np.int64]
    kept: npt.NDArray[np.bool_]
    copies: int
    withheld: int
    characters: str
    longest: tuple[tuple[str, int], ...]

    @property
    def has_several_documents(self) -> bool:
        """If so, each document gets an end-of-text token before it."""
        return len(self.sizes) > 1

    def parts(self, split: SplitName) -> Iterator[Part]:
        """Yield every document's text of a split, in order; documents without any are not read to their end.

        DataError where the text is no longer what was split.
        """
        documents = (document for source in self.sources for document in source.documents())
        kept = itertools.compress(documents, itertools.chain(self.kept.tolist(), itertools.repeat(True)))
        for index, document in itertools.zip_longest(range(len(self.sizes)), kept):
            if index is None or document is None:
                raise changed_meanwhile(self.sources)
            if self.plan.cuts[index] == (0 if split == "train" else self.sizes[index]):
                continue  # it has no such part
            size, begins = 0, True
            for piece in document.pieces:
                text = self.plan.parts(index, piece, before=size)[SPLITS.index(split)]
                size += len(piece)
                if text:
                    yield Part(begins, text)
                    begins = False
            if size != self.sizes[index]:
                raise changed_meanwhile(self.sources)


class _Scanned:
    """The result of a first pass: for each document its size, its hash, and the number of its source."""

    def __init__(self, sources: tuple[Source, ...]) -> None:
        self.sizes, self.sources, self.digests = array("q"), array("q"), bytearray()
        self.characters = CharacterSet()
        self.longest: list[tuple[str, int]] = []
        self.files, self.skipped = [0] * len(sources), Skipped()
        for number, source in enumerate(sources):
            last = None
            for document in source.documents(self.skipped):
                self.files[number] += document.file != last
                last = document.file
                self._add(document, number)

    def _add(self, document: Document, source: int) -> None:
        hashed, size = hashlib.sha256(), 0
        for piece in document.pieces:
            hashed.update(piece)
            size += len(piece)
            self.characters.add(piece)
        self.sizes.append(size)
        self.sources.append(source)
        self.digests += hashed.digest()[:_DIGEST_BYTES]
        if len(self.longest) < _LONGEST or size > self.longest[-1][1]:
            place = document.file if document.line is None else f"{document.file}:{document.line}"
            self.longest = sorted([*self.longest, (place, size)], key=lambda found: -found[1])[:_LONGEST]


def scan(sources: tuple[Source, ...], val_fraction: float, val_max_bytes: int, *, deduplicate: bool = False) -> Corpus:
    """Read all text once and plan the split. DataError as in Source.documents, and for text too short to be split.

    Where the validation text is a source of its own, documents of the others that equal one of it are left out.
    deduplicate: leave out documents that equal an earlier one, too.
    """
    found = _Scanned(sources)
    every_size, source_of = np.array(found.sizes, np.int64), np.array(found.sources, np.int64)
    for_validation = np.array([source.is_for_validation for source in sources])[source_of]
    digests = np.frombuffer(found.digests, np.dtype((np.void, _DIGEST_BYTES)))
    _, group = np.unique(digests, return_inverse=True)  # equal documents have one number
    is_withheld = np.isin(group, group[for_validation]) & ~for_validation
    places = np.flatnonzero(~is_withheld)
    firsts = places[np.unique(group[places], return_index=True)[1]]
    kept = ~is_withheld
    copies = len(places) - len(firsts)
    if deduplicate and copies:
        kept = np.zeros_like(kept)
        kept[firsts] = True
        found.skipped["duplicate document", ""] += copies
    sizes = every_size[kept]
    if for_validation.any():
        rule = SplitRule("val_source", 0.0, val_fraction, val_max_bytes)
        plan = SplitPlan(rule, np.where(for_validation[kept], 0, sizes))
    else:
        plan = plan_split(document_hashes(digests[kept]), sizes, val_fraction, val_max_bytes)
    corpus = Corpus(
        sources=sources,
        files=tuple(found.files),
        text_bytes=tuple(int(sizes[source_of[kept] == number].sum()) for number in range(len(sources))),
        skipped=found.skipped,
        plan=plan,
        sizes=sizes,
        kept=kept,
        copies=0 if deduplicate else copies,
        withheld=int(is_withheld.sum()),
        characters=found.characters.sorted(),
        longest=tuple(found.longest),
    )
    _check_both_parts(corpus)
    return corpus


def _check_both_parts(corpus: Corpus) -> None:
    cuts = corpus.plan.cuts
    if (cuts > 0).any() and (corpus.sizes - cuts > _CHARACTER_BYTES).any():
        return  # wherever the cuts move, to the next character
    if any(next(corpus.parts(split), None) is None for split in SPLITS):
        raise DataError(
            f"the text has {counted(int(corpus.sizes.sum()), 'byte')}, too few for a training and a validation part, "
            "which share no document. Give more, or other text.",
            _where(corpus.sources),
        )


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


def changed_meanwhile(sources: tuple[Source, ...]) -> DataError:
    """Return the error for text that is no longer what was split."""
    return DataError("the text changed while it was being prepared. Run the command again.", _where(sources))


def _where(sources: tuple[Source, ...]) -> str:
    return ", ".join(source.spec for source in sources[:3])
