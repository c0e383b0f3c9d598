"""A tokenizer with one id per character of the training text, in the order of their code points."""

from __future__ import annotations

import re
import unicodedata
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
_CONTEXT = 16  # characters on either side that may combine with an unknown one
_FORMS: tuple[unicodedata._NormalizationForm, ...] = ("NFC", "NFKC", "NFD", "NFKD")


class CharacterSet:
    """Collects the characters of texts."""

    def __init__(self) -> None:
        self._ascii = b""
        self._seen = np.zeros(0x110000, dtype=bool)

    def add(self, text: bytes) -> None:
        """Add those of a text in UTF-8."""
        new = text.translate(None, self._ascii)  # which leaves whole characters, and few of most texts
        if new:
            self._seen[_code_points(new.decode())] = True
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

    def encode(self, text: str) -> Ids:
        """Return the ids of a text, (n,). Raise DataError that names the unknown characters.

        >>> CharTokenizer("abc").encode("cab").tolist()
        [2, 0, 1]
        """
        ids = self._encode_ascii(text.encode()) if text.isascii() else self._look_up(_code_points(text))
        if ids.max(initial=0) >= self.vocab_size:
            raise self._unknown(text, np.flatnonzero(ids >= self.vocab_size))
        return ids

    def encode_utf8(self, text: bytes) -> Ids:
        if text.isascii():  # which need not become a str
            ids = self._encode_ascii(text)
            if ids.max(initial=0) < self.vocab_size:
                return ids
        return self.encode(text.decode())

    def _look_up(self, code_points: npt.NDArray[Any]) -> Ids:
        """Return the ids of code points, in their shape. Unknown ones get the largest number of their type."""
        # mode="clip": code points above the highest known one get the last entry, which is unknown.
        return self._id_of_code_point.take(code_points, mode="clip")

    def _encode_ascii(self, text: bytes) -> Ids:
        """Return the ids of ASCII characters, (n,), looked up two at a time: in half the time of one by one."""
        pairs = np.frombuffer(text + b"\0" * (len(text) % 2), "<u2")
        ids = self._ids_of_pair.take(pairs, mode="wrap")  # mode="raise" takes longer
        return ids.view(self._dtype)[: len(text)]

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
        return _code_points(self.characters)

    @cached_property
    def _id_of_code_point(self) -> Ids:
        known = self._known_code_points
        table = np.full(known[-1] + 2 if len(known) else 1, np.iinfo(self._dtype).max, dtype=self._dtype)
        table[known] = np.arange(len(known), dtype=self._dtype)
        return table

    @cached_property
    def _ids_of_pair(self) -> Ids:
        """Return two ids as one number, by their two bytes as one number: (65536,)."""
        second, first = np.divmod(np.arange(1 << 16), 256)
        ids = self._look_up(np.stack((first, second), axis=-1))
        twice: type[np.unsignedinteger[Any]] = np.uint32 if self._dtype is np.uint16 else np.uint64
        return ids.view(twice).reshape(-1)

    @cached_property
    def _dtype(self) -> type[np.unsignedinteger[Any]]:
        return np.uint16 if self.vocab_size < 1 << 16 else np.uint32

    def _unknown(self, text: str, places: npt.NDArray[np.intp]) -> DataError:
        """Return the error for a text with unknown characters at `places`."""
        _, first = np.unique(_code_points(text)[places], return_index=True)
        firsts = [int(place) for place in np.sort(places[first])]
        described = [self._describe(text, at) for at in firsts[:_SHOWN]]
        if len(firsts) > _SHOWN:
            described.append(f"{len(firsts) - _SHOWN} more")
        *most, last = described
        one = len(firsts) == 1
        return DataError(
            f"{last if one else ', '.join(most) + ' and ' + last} {'is' if one else 'are'} unknown to the tokenizer, "
            f"which knows {counted(len(self.characters), 'character')} from its training text. Change this text, or "
            f"train on one that contains {'it' if one else 'them'}."
        )

    def _describe(self, text: str, at: int) -> str:
        character = text[at]
        form = self._known_form(text[max(at - _CONTEXT, 0) : at + _CONTEXT + 1], character)
        known = f", known in normal form {form}" if form else ""
        return f"{character!r} (U+{ord(character):04X}, first at character {at}{known})"

    def _known_form(self, context: str, character: str) -> str | None:
        """Find a Unicode normal form of `context` without the unknown `character` and without new unknown ones."""
        before = set(context) - set(self.characters)
        for form in _FORMS:
            after = set(unicodedata.normalize(form, context)) - set(self.characters)
            if after <= before - {character}:
                return form
        return None


def _code_points(text: str) -> npt.NDArray[np.uint32]:
    """Return the code points, (len(text),). Lone surrogates pass: they are unknown characters like others."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
