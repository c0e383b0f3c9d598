"""The documents of all sources and their split, read in several passes with one document in memory at a time."""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gptlite.data.sources import Source
from gptlite.data.split import SplitName, SplitPlan, document_hash, plan_split, split_as_given
from gptlite.errors import DataError
from gptlite.formatting import counted


@dataclass(frozen=True, eq=False)
class Corpus:
    """The result of a first pass over the text: the sizes of the documents and the split that follows from them.

    files, text_bytes: per source. skipped: number of files without text, by kind. kept: for each document that the
    sources have, whether it is one of the corpus. copies: documents of the corpus that equal an earlier one.
    """

    sources: tuple[Source, ...]
    files: tuple[int, ...]
    text_bytes: tuple[int, ...]
    skipped: Counter[str]
    plan: SplitPlan
    sizes: Sequence[int]
    kept: Sequence[int]
    copies: int

    @property
    def has_several_documents(self) -> bool:
        """If so, each document gets an end-of-text token before it."""
        return len(self.sizes) > 1

    def texts(self) -> Iterator[str]:
        """Every document's whole text, in order."""
        documents = (document for source in self.sources for document in source.documents())
        for index, document in enumerate(documents):
            if index >= len(self.kept) or self.kept[index]:
                yield document.text

    def parts(self) -> Iterator[tuple[SplitName, str]]:
        """Every document's training and validation part, in order; empty parts are left out."""
        index = -1
        for index, text in enumerate(self.texts()):
            raw = text.encode()
            if index >= len(self.sizes) or len(raw) != self.sizes[index]:
                raise changed_meanwhile(self.sources)
            train, val = self.plan.parts(index, raw)
            if train:
                yield "train", train.decode()
            if val:
                yield "val", val.decode()
        if index + 1 != len(self.sizes):
            raise changed_meanwhile(self.sources)

    def training_texts(self) -> Iterator[str]:
        """The training parts alone."""
        return (text for split, text in self.parts() if split == "train")


def scan(sources: tuple[Source, ...], val_fraction: float, val_max_bytes: int, *, deduplicate: bool = False) -> Corpus:
    """Read all text once and plan the split. DataError as in Source.documents, and for text too short to be split.

    deduplicate: leave out documents that equal an earlier one.
    """
    files, text_bytes = [], []
    hashes, sizes, for_validation = array("d"), array("q"), array("b")
    skipped, kept, seen = Counter[str](), array("b"), set[bytes]()
    for source in sources:
        before, n_files, file = len(sizes), 0, None
        for document in source.documents(skipped):
            raw = document.text.encode()
            n_files += document.file != file
            file = document.file
            digest = hashlib.sha256(raw).digest()
            keep = not (deduplicate and digest in seen)
            seen.add(digest)
            kept.append(keep)
            if keep:
                hashes.append(document_hash(digest))
                sizes.append(len(raw))
                for_validation.append(source.is_for_validation)
            else:
                skipped["duplicate document"] += 1
        files.append(n_files)
        text_bytes.append(sum(sizes[before:]))
    all_sizes = np.array(sizes, np.int64)
    if any(source.is_for_validation for source in sources):
        plan = split_as_given(np.array(for_validation, np.bool_), all_sizes, val_fraction, val_max_bytes)
    else:
        plan = plan_split(np.array(hashes), all_sizes, val_fraction, val_max_bytes)
    copies = len(sizes) - len(seen)
    corpus = Corpus(sources, tuple(files), tuple(text_bytes), skipped, plan, sizes, kept, copies)
    _check_both_parts(corpus)
    return corpus


def _check_both_parts(corpus: Corpus) -> None:
    if corpus.plan.rule.rule == "document_hash":
        return  # both parts have whole documents
    missing: set[SplitName] = {"train", "val"}
    for split, _ in corpus.parts():
        missing.discard(split)
        if not missing:
            return
    raise DataError(
        f"the text has {counted(sum(corpus.sizes), 'byte')}, too few for a training and a validation part. "
        "Give more text.",
        _where(corpus.sources),
    )


def changed_meanwhile(sources: tuple[Source, ...]) -> DataError:
    """The error for text that is no longer what was split."""
    return DataError("the text changed while it was being prepared. Run the command again.", _where(sources))


def _where(sources: tuple[Source, ...]) -> str:
    return ", ".join(source.spec for source in sources[:3])
