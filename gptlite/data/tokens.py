"""Rows of token ids that can be read piece by piece, and how long they have to be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from gptlite.errors import DataError
from gptlite.formatting import counted

Ids: TypeAlias = npt.NDArray[np.unsignedinteger[Any]]


class Tokens(Protocol):
    """`gptlite.data.prepared.Split` is one; `name` is what errors call it."""

    @property
    def name(self) -> str: ...

    @property
    def n_tokens(self) -> int: ...

    def read(self, start: int, length: int) -> Ids:
        """Ids start .. start + length - 1: (length,). IndexError outside."""
        ...


@dataclass(frozen=True, eq=False)
class TokenArray:
    """Ids in memory, (n,): of a text that is only to be scored, say."""

    ids: Ids
    name: str

    @property
    def n_tokens(self) -> int:
        """How many there are."""
        return len(self.ids)

    def read(self, start: int, length: int) -> Ids:
        """See Tokens."""
        check_range(start, length, self.n_tokens)
        return self.ids[start : start + length]


def check_range(start: int, length: int, n_tokens: int) -> None:
    """IndexError unless `length` ids from `start` on lie inside."""
    if start < 0 or length < 0 or start + length > n_tokens:
        raise IndexError(f"ids {start} to {start + length} of {n_tokens}")


def check_trainable(tokens: Tokens, block_size: int) -> None:
    """DataError, naming the largest block_size that works, when no window of block_size + 1 ids fits."""
    if tokens.n_tokens > block_size:
        return
    largest = tokens.n_tokens - 1
    advice = f"set model.block_size to at most {largest}, or give more text" if largest > 0 else "give more text"
    raise DataError(
        f"{tokens.name} = {counted(tokens.n_tokens, 'token')}: "
        f"model.block_size = {block_size} needs {block_size + 1}; {advice}"
    )


def check_scorable(tokens: Tokens) -> None:
    """DataError when there is no token with one before it."""
    if tokens.n_tokens < 2:
        raise DataError(
            f"{tokens.name} = {counted(tokens.n_tokens, 'token')}: at least 2 are needed to score one; give more text"
        )
