"""The report on a prepared text: what its user should know before training on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
import numpy.typing as npt
from pydantic import Field

from gptlite.data.preparing.corpus import Corpus, LongDocument
from gptlite.data.preparing.encode import EncodedCorpus
from gptlite.data.preparing.overlap import Overlap
from gptlite.tokenizers.base import Tokenizer
from gptlite.tokenizers.readable import label

_MERGES = 8
_CHARACTERS = 20

Number = Annotated[int, Field(ge=0)]


@dataclass(frozen=True)
class Merge:
    """A token of several bytes: its label, and how many tokens fewer the training text has than it has bytes there."""

    label: str
    saved: Number


@dataclass(frozen=True)
class TextReport:
    """The findings about a text.

    copies: documents that equal an earlier one and were kept. longest: documents, the longest first. used_ids: how many
    ids the training text has. val_only: the first characters that only the validation text has; n_val_only: how many
    there are. merges: the tokens that save most. forced_cuts: places where a text was cut although that may have
    changed ids. withheld: documents left out of training, because the validation text has the same.
    """

    copies: Number
    longest: tuple[LongDocument, ...]
    used_ids: Number
    val_only: str
    n_val_only: Number
    overlap: Overlap
    merges: tuple[Merge, ...]
    forced_cuts: Number
    withheld: Number = 0  # older versions trained on them


def make_report(
    corpus: Corpus, encoded: EncodedCorpus, tokenizer: Tokenizer, count: Callable[[], npt.NDArray[np.int64]]
) -> TextReport:
    """The report on a corpus that was encoded. count: gives how often each id is in the training text."""
    is_char = tokenizer.kind == "char"  # then nothing has to be counted
    used = len(corpus.characters) - len(encoded.val_only) if is_char else int((count() > 0)[:-1].sum())
    return TextReport(
        copies=corpus.copies,
        longest=tuple(replace(each, source=storable(each.source), file=storable(each.file)) for each in corpus.longest),
        used_ids=used,
        val_only=encoded.val_only[:_CHARACTERS],
        n_val_only=len(encoded.val_only),
        overlap=encoded.overlap,
        merges=() if is_char else _merges(count(), tokenizer),
        forced_cuts=encoded.forced_cuts,
        withheld=corpus.withheld,
    )


def _merges(counts: npt.NDArray[np.int64], tokenizer: Tokenizer) -> tuple[Merge, ...]:
    pieces = tokenizer.token_bytes()
    saved = counts * np.array([max(0, len(piece) - 1) for piece in pieces], np.int64)
    most = np.argsort(-saved, kind="stable")[:_MERGES].tolist()
    return tuple(Merge(label(pieces[i]), int(saved[i])) for i in most if saved[i])


def storable(name: str) -> str:
    """A name for JSON: it may have bytes that are not UTF-8, which Python keeps as surrogates."""
    return name.encode(errors="backslashreplace").decode()
