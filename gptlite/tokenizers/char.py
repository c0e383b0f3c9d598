"""A tokenizer with one id per character of the training text, in the order of their code points."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from gptlite.errors import DataError
from gptlite.formatting import counted
from gptlite.storage.sealed_json import dump_sealed
from gptlite.tokenizers import folder, huggingface
from gptlite.tokenizers.folder import META_FILE, Ids, checked_ids, not_a_tokenizer

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
            self._seen[_code_points(new)] = True
            self._ascii = np.flatnonzero(self._seen[:128]).astype(np.uint8).tobytes()

    def sorted(self) -> str:
        """Return all characters, each once, by code point."""
        return "".join(map(chr, np.flatnonzero(self._seen)))


@dataclass(frozen=True, eq=False)
class CharTokenizer:
    """A Tokenizer. `characters` are distinct and sorted; the id of each is its index."""

    characters: str
    kind: ClassVar[str] = "char"

    @classmethod
    def of(cls, texts: Iterable[str]) -> CharTokenizer:
        """Build a tokenizer that knows every character of `texts`."""
        found = CharacterSet()
        for text in texts:
            found.add(text.encode())
        return cls(found.sorted())

    @classmethod
    def read(cls, fields: Mapping[str, Any], path: Path) -> CharTokenizer:
        """Return the tokenizer that the `fields` of a META_FILE describe. Raise Damaged when there can be none."""
        characters = fields.get("characters")
        if not isinstance(characters, str) or any(a >= b for a, b in pairwise(characters)):
            raise not_a_tokenizer(path, "its characters are not a text of distinct ones in order")
        if _SURROGATE.search(characters):
            raise not_a_tokenizer(path, "half of a surrogate pair is no character")
        return cls(characters)

    @property
    def vocab_size(self) -> int:
        return len(self.characters) + 1

    @property
    def requested_vocab_size(self) -> int:
        return self.vocab_size

    @property
    def eot_id(self) -> int:
        return self.vocab_size - 1

    @cached_property
    def fingerprint(self) -> str:
        return folder.fingerprint(self._fields)

    def encode(self, text: str | bytes) -> Ids:
        """Return the ids of a text, (n,). Raise DataError that names the unknown characters.

        >>> CharTokenizer("abc").encode("cab").tolist()
        [2, 0, 1]
        """
        code_points = _code_points(text)
        # mode="clip": code points above the highest known one get the last entry, which is unknown.
        ids = self._id_of_code_point.take(code_points, mode="clip")
        if ids.max(initial=0) >= self.vocab_size:
            raise self._unknown(code_points, code_points[ids >= self.vocab_size])
        return ids

    def last_cut(self, text: bytes) -> int:
        return len(text)

    def known(self, text: str) -> str:
        return "".join(character for character in text if character in self.characters)

    def token_bytes(self) -> list[bytes]:
        return self._tokens

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        return self.decode(ids).encode()

    def decode(self, ids: Iterable[int]) -> str:
        array = checked_ids(ids, self.vocab_size)
        code_points = self._known_code_points[array[array != self.eot_id]]
        return str(code_points.tobytes(), "utf-32-le")

    def files(self) -> dict[str, bytes]:
        return {META_FILE: dump_sealed(self._fields), **huggingface.char_files(self.characters)}

    @property
    def _fields(self) -> dict[str, str]:
        return {"kind": self.kind, "characters": self.characters}

    @cached_property
    def _tokens(self) -> list[bytes]:
        return [*(character.encode() for character in self.characters), b""]

    @cached_property
    def _known_code_points(self) -> npt.NDArray[np.uint32]:
        return _code_points(self.characters).astype("<u4")

    @cached_property
    def _id_of_code_point(self) -> Ids:
        known = self._known_code_points
        table = np.full(known[-1] + 2 if len(known) else 1, np.iinfo(self._dtype).max, dtype=self._dtype)
        table[known] = np.arange(len(known), dtype=self._dtype)
        return table

    @cached_property
    def _dtype(self) -> type[np.unsignedinteger[Any]]:
        return np.uint16 if self.vocab_size < 1 << 16 else np.uint32

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


def _code_points(text: str | bytes) -> npt.NDArray[np.unsignedinteger[Any]]:
    """Return the code points, (n,), of a text or its UTF-8. Lone surrogates pass: they are unknown characters."""
    if text.isascii():
        return np.frombuffer(text if isinstance(text, bytes) else text.encode(), np.uint8)
    text = text.decode() if isinstance(text, bytes) else text
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
