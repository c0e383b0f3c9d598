"""The characters of a text that a reused character tokenizer does not know, with the place of each."""

from __future__ import annotations

from collections.abc import Iterable

from gptlite.data.preparing.corpus import Corpus
from gptlite.data.sources.sources import Source
from gptlite.errors import DataError
from gptlite.formatting import counted
from gptlite.tokenizers.base import Tokenizer

_SHOWN = 5  # unknown characters named in one message


def check_characters(tokenizer: Tokenizer, corpus: Corpus) -> None:
    """DataError that names the characters of the text without an id, and where each occurs first."""
    if tokenizer.kind != "char":
        return  # the others know every byte
    unknown = set(corpus.characters).difference(*(piece.decode() for piece in tokenizer.token_bytes()))
    if unknown:
        places = _find(unknown, corpus.sources)
        raise DataError(
            f"it does not know {counted(len(places), 'character')} of this text: {_describe(places)}. Use a tokenizer "
            "of kind bpe, which knows all, or a text without them.",
            "tokenizer.from",
        )


def _find(characters: set[str], sources: Iterable[Source]) -> dict[str, str]:
    """Where each character occurs first, as file:line."""
    places: dict[str, str] = {}
    for source in sources:
        for document in source.documents():
            line = 1
            for piece in map(bytes.decode, document.pieces):
                for character in characters.intersection(piece) - places.keys():
                    before = piece.count("\n", 0, piece.index(character))
                    places[character] = f"{document.file}:{line + before if document.line is None else document.line}"
                line += piece.count("\n")
    return places


def _describe(places: dict[str, str]) -> str:
    in_order = sorted(places)
    shown = [f"{each!r} (U+{ord(each):04X}, first in {places[each]})" for each in in_order[:_SHOWN]]
    return ", ".join(shown) + (f" and {len(places) - _SHOWN:,} more" if len(places) > _SHOWN else "")
