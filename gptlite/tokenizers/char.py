"""A tokenizer with one id per character of the training text, in the order of their code points."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gptlite.errors import DataError
from gptlite.formatting import counted
from gptlite.tokenizers import huggingface
from gptlite.tokenizers.folder import Ids, Tokenizer, not_a_tokenizer

_SURROGATE = re.compile("[\ud800-\udfff]")
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

    @classmethod
    def read(cls, fields: Mapping[str, Any], path: Path) -> CharTokenizer:
        """Return the tokenizer that the `fields` of a META_FILE describe. Raise Damaged when there can be none."""
        characters = fields.get("characters")
        if not isinstance(characters, str) or not all(a < b for a, b in pairwise(characters)):
            raise not_a_tokenizer(path, "its characters are not a text of distinct ones in order")
        if _SURROGATE.search(characters):
            raise not_a_tokenizer(path, "half of a surrogate pair is no character")
        return cls(characters)

    def encode(self, text: str | bytes) -> Ids:
        """Return the ids of a text, (n,). Raise DataError that names the unknown characters.

        >>> CharTokenizer("abc").encode("cab").tolist()
        [2, 0, 1]
        """
        points = code_points(text)
        # mode="clip": code points above the highest known one get the last entry, which is unknown.
        ids = self._id_of_code_point.take(points, mode="clip")
        if ids.max(initial=0) >= self.vocab_size:
            raise self._unknown(points, points[ids >= self.vocab_size])
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

    def _unknown(self, text: npt.NDArray[np.uint32], unknown: npt.NDArray[np.uint32]) -> DataError:
        """Return the error for a text with these unknown characters."""
        each = list(dict.fromkeys(unknown.tolist()))
        names = [f"{chr(c)!r} (U+{c:04X}, first at character {np.argmax(text == c)})" for c in each[:_SHOWN]]
        more = [f"{len(each) - _SHOWN} more"] if len(each) > _SHOWN else []
        *most, last = names + more
        one = len(each) == 1
        return DataError(
            f"{last if one else ', '.join(most) + ' and ' + last} {'is' if one else 'are'} unknown to the tokenizer, "
            f"which knows {counted(len(self.characters), 'character')} from its training text. Change this text, or "
            f"train on one that contains {'it' if one else 'them'}."
        )


def code_points(text: str | bytes) -> npt.NDArray[np.unsignedinteger[Any]]:
    """Return the code points, (n,), of a text or its UTF-8. Lone surrogates pass: they are unknown characters."""
    if text.isascii():
        return np.frombuffer(text if isinstance(text, bytes) else text.encode(), np.uint8)
    text = text.decode() if isinstance(text, bytes) else text
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
