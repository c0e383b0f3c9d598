"""Sequences of token ids that are read piece by piece; the checks of their length, and their text."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from gptlite.errors import DataError
from gptlite.formatting import counted
from gptlite.tokenizers.base import Tokenizer
from gptlite.tokenizers.folder import Ids

_PIECE = 1 << 20  # ids that are decoded at a time
COUNTED_BLOCKS, COUNTED_BLOCK = 64, 1 << 17  # of ids: at most 8 million are a sample of a text


class Tokens(Protocol):
    """`prepared.Split` is one. `where` is the place that errors name; None if it is not known here."""

    @property
    def where(self) -> str | None: ...

    @property
    def n_tokens(self) -> int: ...

    def read(self, start: int, length: int) -> Ids:
        """Ids start .. start + length - 1: (length,)."""
        ...


@dataclass(frozen=True, eq=False)
class TokenArray:
    """Ids in memory, (n,)."""

    ids: Ids
    where: str | None = None

    @property
    def n_tokens(self) -> int:
        return len(self.ids)

    def read(self, start: int, length: int) -> Ids:
        return self.ids[start : start + length]


def count_ids(tokens: Tokens, vocab_size: int, *, exact: bool = False) -> npt.NDArray[np.int64]:
    """Count how often each id occurs: (V,). Of a long text only in blocks at equal distances, unless it is `exact`."""
    n_blocks = -(-tokens.n_tokens // COUNTED_BLOCK) if exact else COUNTED_BLOCKS
    bounds = [i * tokens.n_tokens // n_blocks for i in range(n_blocks + 1)]
    counts = np.zeros(vocab_size, np.int64)
    for start, end in itertools.pairwise(bounds):
        counts += np.bincount(tokens.read(start, min(end - start, COUNTED_BLOCK)), minlength=vocab_size)
    return counts


def find_id(tokens: Tokens, token: int) -> npt.NDArray[np.int64]:
    """Return the places of an id, in order: (n,)."""
    pieces = range(0, tokens.n_tokens, _PIECE)
    found = [at + np.flatnonzero(tokens.read(at, min(_PIECE, tokens.n_tokens - at)) == token) for at in pieces]
    return np.concatenate([np.zeros(0, np.int64), *found])


def check_trainable(tokens: Tokens, block_size: int) -> None:
    """DataError, naming the largest block_size that works, unless a window of block_size + 1 ids fits."""
    largest = tokens.n_tokens - 1
    advice = f"Use model.block_size={largest} or less, or give more text." if largest > 0 else "Give more text."
    _check_length(tokens, block_size + 1, f"model.block_size {block_size}", advice)


def check_scorable(tokens: Tokens) -> None:
    """DataError unless there is a token with another before it."""
    _check_length(tokens, 2, "scoring", "Give more text.")


def _check_length(tokens: Tokens, least: int, purpose: str, advice: str) -> None:
    if (n := tokens.n_tokens) < least:
        raise DataError(
            f"the text has {counted(n, 'token')}, but {purpose} needs at least {least}. {advice}", tokens.where
        )


def detokenize(tokens: Tokens, tokenizer: Tokenizer, *, separator: bytes = b"") -> Iterator[bytes]:
    """Yield the text of ids in UTF-8, in pieces that may end inside a character. End-of-text becomes `separator`."""
    token_bytes = list(tokenizer.token_bytes())
    token_bytes[tokenizer.eot_id] = separator
    for start in range(0, tokens.n_tokens, _PIECE):
        ids = tokens.read(start, min(_PIECE, tokens.n_tokens - start))
        yield b"".join(map(token_bytes.__getitem__, ids.tolist()))
