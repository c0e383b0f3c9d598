"""What the manifest says of a text that was encoded, and what its user should know before training on it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from gptlite.data.dataset.manifest import SplitRecord, TextReport
from gptlite.data.dataset.tokens import Tokens, find_id
from gptlite.data.preparing.corpus import Corpus
from gptlite.data.preparing.encode import Encoded
from gptlite.tokenizers.base import Tokenizer, label

_MERGES = 8
_CHARACTERS = 20

CountIds = Callable[[], npt.NDArray[np.int64]]  # how often each id is in the training text: (V,)


def record_split(tokens: Tokens, text_bytes: int, end: int | None) -> SplitRecord:
    """Return the sizes of a split. end: the id before each document; None for a single document."""
    starts = np.zeros(1, np.int64) if end is None else find_id(tokens, end)
    lengths = np.sort(np.diff(starts, append=tokens.n_tokens))
    half = np.searchsorted(2 * np.cumsum(lengths), tokens.n_tokens, "right")
    return SplitRecord(tokens.n_tokens, text_bytes, len(lengths), int(lengths[half]))


def choose_start_id(corpus: Corpus, encoded: Encoded, tokenizer: Tokenizer, count: CountIds) -> int:
    """Return the id that sampling starts from: end-of-text if there are several documents.

    For a single one the newline if it is a token of the training text, else the most frequent id.
    """
    if corpus.has_several_documents:
        return tokenizer.eot_id
    newline = next((i for i, piece in enumerate(tokenizer.token_bytes()) if piece == b"\n"), None)
    if newline is not None and ("\n" not in encoded.val_only if tokenizer.kind == "char" else count()[newline]):
        return newline
    return int(count().argmax())


def make_report(corpus: Corpus, encoded: Encoded, tokenizer: Tokenizer, count: CountIds) -> TextReport:
    """Return the report on a corpus that was encoded."""
    is_char = tokenizer.kind == "char"  # then nothing has to be counted
    used = len(corpus.characters) - len(encoded.val_only) if is_char else int((count() > 0)[:-1].sum())
    return TextReport(
        copies=corpus.copies,
        longest=tuple((storable(place), size) for place, size in corpus.longest),
        used_ids=used,
        val_only=encoded.val_only[:_CHARACTERS],
        n_val_only=len(encoded.val_only),
        merges=() if is_char else _merges(count(), tokenizer),
        forced_cuts=encoded.forced_cuts,
        withheld=corpus.withheld,
    )


def _merges(counts: npt.NDArray[np.int64], tokenizer: Tokenizer) -> tuple[str, ...]:
    """Return the tokens by which the training text has most fewer tokens than bytes."""
    pieces = tokenizer.token_bytes()
    saved = counts * np.array([max(0, len(piece) - 1) for piece in pieces], np.int64)
    return tuple(label(pieces[i]) for i in np.argsort(-saved, kind="stable")[:_MERGES].tolist() if saved[i])


def storable(name: str) -> str:
    """Return a name for JSON: it may have bytes that are not UTF-8, which Python keeps as surrogates."""
    return name.encode(errors="backslashreplace").decode()
