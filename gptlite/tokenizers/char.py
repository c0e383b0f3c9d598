"""One id per character: those of the training text, in the order of their code points."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from gptlite.errors import DataError
from gptlite.tokenizers import huggingface
from gptlite.tokenizers.folder import META_FILE, as_json, checked_ids, describe

_UNKNOWN = 0xFFFFFFFF
_SHOWN = 5  # unknown characters named in one message
_AROUND = 16  # characters on either side that can make up one composed character with an unknown one
_FORMS: tuple[unicodedata._NormalizationForm, ...] = ("NFC", "NFKC", "NFD", "NFKD")


@dataclass(frozen=True, eq=False)
class CharTokenizer:
    """`characters`, distinct and sorted: the id of each is its place."""

    characters: str
    kind: ClassVar[str] = "char"

    @classmethod
    def of(cls, texts: Iterable[str]) -> CharTokenizer:
        """A tokenizer that knows every character of `texts`."""
        seen = np.zeros(0x110000, dtype=bool)
        for text in texts:
            seen[_code_points(text)] = True
        return cls("".join(map(chr, np.flatnonzero(seen))))

    @property
    def vocab_size(self) -> int:
        """The characters and end-of-text."""
        return len(self.characters) + 1

    @property
    def requested_vocab_size(self) -> int:
        """See Tokenizer: the text alone decides the size."""
        return self.vocab_size

    @property
    def eot_id(self) -> int:
        """See Tokenizer."""
        return self.vocab_size - 1

    @property
    def fingerprint(self) -> str:
        """See Tokenizer."""
        return str(self._meta["fingerprint"])

    def encode(self, text: str) -> npt.NDArray[np.uint32]:
        """See Tokenizer.

        >>> CharTokenizer("abc").encode("cab").tolist()
        [2, 0, 1]
        """
        # Code points above the highest known one land on the last entry, which is unknown.
        ids = self._id_of_code_point.take(_code_points(text), mode="clip")
        if ids.size and ids.max() == _UNKNOWN:
            raise self._unknown(text, np.flatnonzero(ids == _UNKNOWN))
        return ids

    def known(self, text: str) -> str:
        """See Tokenizer."""
        return "".join(character for character in text if character in self._known)

    def token_bytes(self) -> list[bytes]:
        """See Tokenizer."""
        return self._tokens

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """See Tokenizer."""
        return self.decode(ids).encode()

    def decode(self, ids: Iterable[int]) -> str:
        """See Tokenizer."""
        array = checked_ids(ids, self.vocab_size)
        code_points = _code_points(self.characters)[array[array != self.eot_id]]
        return str(code_points.tobytes(), "utf-32-le")

    def files(self) -> dict[str, bytes]:
        """See Tokenizer."""
        return {META_FILE: as_json(self._meta), **huggingface.char_files(self.characters)}

    @cached_property
    def _meta(self) -> dict[str, object]:
        return describe(self.kind, self.vocab_size, characters=self.characters)

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(self.characters)

    @cached_property
    def _tokens(self) -> list[bytes]:
        return [*(character.encode() for character in self.characters), b""]

    @cached_property
    def _id_of_code_point(self) -> npt.NDArray[np.uint32]:
        known = _code_points(self.characters)
        table = np.full(known[-1] + 2 if len(known) else 1, _UNKNOWN, dtype=np.uint32)
        table[known] = np.arange(len(known), dtype=np.uint32)
        return table

    def _unknown(self, text: str, places: npt.NDArray[np.intp]) -> DataError:
        """What to say about the unknown characters of a text, which stand at `places`."""
        _, first = np.unique(_code_points(text)[places], return_index=True)
        firsts = [int(place) for place in np.sort(places[first])]
        named = [self._name(text, at) for at in firsts[:_SHOWN]]
        more = f" and {len(firsts) - _SHOWN} more" if len(firsts) > _SHOWN else ""
        return DataError(
            f"text: unknown characters = {', '.join(named)}{more}: the tokenizer knows the {len(self.characters)} "
            "characters of its training text; change the text, or train on text that has them"
        )

    def _name(self, text: str, at: int) -> str:
        character = text[at]
        form = self._known_form(text[max(at - _AROUND, 0) : at + _AROUND + 1], character)
        known = f", known if the text is brought to {form}" if form else ""
        return f"{character!r} (U+{ord(character):04X}, first at character {at}{known})"

    def _known_form(self, around: str, character: str) -> str | None:
        """The Unicode normal form in which the unknown `character` is gone from `around` and nothing unknown came."""
        before = set(around) - set(self.characters)
        for form in _FORMS:
            after = set(unicodedata.normalize(form, around)) - set(self.characters)
            if after <= before - {character}:
                return form
        return None


def _code_points(text: str) -> npt.NDArray[np.uint32]:
    """(len(text),), a view. Lone surrogates pass: to a char tokenizer they are unknown characters like others."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
