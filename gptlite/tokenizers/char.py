"""A tokenizer with one id per character of the training text, in the order of their code points."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from gptlite.errors import DataError
from gptlite.formatting import and_more, counted
from gptlite.tokenizers import huggingface
from gptlite.tokenizers.folder import Ids, Tokenizer

_SHOWN = 5  # unknown characters named in one message


class CharacterSet:
    """Collects the characters of texts."""

    def __init__(self) -> None:
        self._ascii = b""
        self._seen = np.zeros(0x110000, dtype=bool)

    def add(self, text: bytes) -> None:
        """Add those of a text in UTF-8."""
        new = text.translate(None, self._ascii)  # which leaves whole characters, and few of most texts
        if new:
            self._seen[code_points(new)] = True
            self._ascii = np.flatnonzero(self._seen[:128]).astype(np.uint8).tobytes()

    def sorted(self) -> str:
        """Return all characters, each once, by code point."""
        return "".join(map(chr, np.flatnonzero(self._seen)))


class CharTokenizer(Tokenizer):
    """The id of each of the `characters`, which are distinct and sorted, is its index."""

    kind = "char"

    def __init__(self, characters: str) -> None:
        self.characters = characters
        self.vocab_size = self.requested_vocab_size = len(characters) + 1
        self._dtype: type[np.unsignedinteger[Any]] = np.uint16 if self.vocab_size < 1 << 16 else np.uint32

    def encode(self, text: str | bytes) -> Ids:
        """Return the ids of a text, (n,). Raise DataError that names the unknown characters.

        >>> CharTokenizer("abc").encode("cab").tolist()
        [2, 0, 1]
        """
        points = code_points(text)
        # mode="clip": code points above the highest known one get the last entry, which is unknown.
        ids = self._id_of_code_point.take(points, mode="clip")
        if ids.max(initial=0) >= self.vocab_size:
            unknown = dict.fromkeys(points[ids >= self.vocab_size].tolist())
            names = [f"{chr(point)!r} (U+{point:04X})" for point in unknown]
            raise DataError(
                f"the tokenizer does not know {and_more(names, _SHOWN)}: it knows "
                f"{counted(len(self.characters), 'character')} from its training text. Change this text, or train on "
                "one that has them."
            )
        return ids

    def known(self, text: str) -> str:
        return "".join(character for character in text if character in self.characters)

    @cached_property
    def _fields(self) -> dict[str, Any]:
        return {"kind": self.kind, "characters": self.characters}

    @cached_property
    def _tokens(self) -> list[bytes]:
        return [*(character.encode() for character in self.characters), b""]

    @cached_property
    def _for_transformers(self) -> dict[str, bytes]:
        return huggingface.char_files(self.characters)

    @cached_property
    def _id_of_code_point(self) -> Ids:
        known = code_points(self.characters)
        table = np.full(int(known.max(initial=0)) + 2, np.iinfo(self._dtype).max, dtype=self._dtype)
        table[known] = np.arange(len(known), dtype=self._dtype)
        return table


def code_points(text: str | bytes) -> npt.NDArray[np.unsignedinteger[Any]]:
    """Return the code points, (n,), of a text or its UTF-8. Lone surrogates pass: they are unknown characters."""
    if text.isascii():
        return np.frombuffer(text if isinstance(text, bytes) else text.encode(), np.uint8)
    text = text.decode() if isinstance(text, bytes) else text
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
