"""The interface of all tokenizers and what they share: the sealed JSON file that describes one, decoding."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from gptlite.errors import DataError
from gptlite.storage.sealed import dump_sealed, seal

Ids: TypeAlias = npt.NDArray[np.unsignedinteger[Any]]

END_OF_TEXT = "<|endoftext|>"
META_FILE = "gptlite_tokenizer.json"


class Tokenizer(ABC):
    """Text to ids and back. Ids are 0 .. vocab_size - 1; the last is end-of-text, which no text encodes to.

    kind: that in the config: char, bpe, gpt2 and so on. requested_vocab_size: the size asked for, larger than
    `vocab_size` if the training text had too few merges.
    """

    kind: str
    vocab_size: int
    requested_vocab_size: int

    @property
    def eot_id(self) -> int:
        """The id of end-of-text: vocab_size - 1."""
        return self.vocab_size - 1

    @cached_property
    def fingerprint(self) -> str:
        """Hex sha256 over everything that decides ids."""
        return seal({key: value for key, value in self._fields.items() if key != "requested_vocab_size"})

    @abstractmethod
    def encode(self, text: str | bytes) -> Ids:
        """Return the ids of a text or its UTF-8, (n,), in any type that holds them. "<|endoftext|>" is no special one.

        Raise DataError, without a place, for characters that have no ids: those unknown to a char tokenizer, and lone
        surrogates.
        """

    def last_cut(self, text: bytes) -> int:
        """Return the last byte at which the halves of a text in UTF-8 have the ids of the whole; 0 if there is none."""
        return len(text)

    def known(self, text: str) -> str:
        """Return the text without the characters that `encode` refuses: here lone surrogates, which have no bytes."""
        return text.encode("utf-8", "ignore").decode()

    def token_bytes(self) -> Sequence[bytes]:
        """Return the UTF-8 bytes of each of the vocab_size ids; b"" for end-of-text and ids that no text produces."""
        return self._tokens

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of all ids; bytes that are not UTF-8 become U+FFFD. Raise DataError for one outside."""
        array = np.asarray(ids, np.int64) if isinstance(ids, np.ndarray) else np.fromiter(ids, np.int64)
        outside = (array < 0) | (array >= self.vocab_size)
        if outside.any():
            raise DataError(
                f"{array[outside][0]} is not an id of this tokenizer, which has 0 to {self.eot_id}. "
                "Use the tokenizer that the ids came from."
            )
        return b"".join(map(self._tokens.__getitem__, array.tolist())).decode("utf-8", "replace")

    def files(self) -> dict[str, bytes]:
        """Return name -> content of the files that `load` and transformers' AutoTokenizer read; always the same."""
        return {META_FILE: dump_sealed(self._fields), **self._for_transformers}

    @cached_property
    @abstractmethod
    def _fields(self) -> dict[str, Any]: ...

    @cached_property
    @abstractmethod
    def _tokens(self) -> list[bytes]: ...

    @cached_property
    @abstractmethod
    def _for_transformers(self) -> dict[str, bytes]: ...
