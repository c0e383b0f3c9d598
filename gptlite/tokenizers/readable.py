"""Tokens for people: their bytes as text that a page, a table or a chart can show."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def readable(piece: bytes) -> str:
    """The text of a token, newlines, tabs and blanks as they are; what has no sign of its own is spelled out: bytes
    that are part of a character, control characters, marks that turn the direction of writing.

    >>> readable(b"a\\n"), readable(b"\\xe6\\x97"), readable("\\u202e".encode())
    ('a\\n', '\\\\xe6\\\\x97', '\\\\u202e')
    """
    text = piece.decode(errors="backslashreplace")
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def label(piece: bytes) -> str:
    """The text of a token on one line, with a sign for each blank.

    >>> label(b" the\\n")
    '␣the↵'
    """
    return readable(piece).translate({ord(" "): "␣", ord("\n"): "↵", ord("\t"): "⇥"})


def labels(pieces: Sequence[bytes], ids: Iterable[int], end: int) -> dict[int, str]:
    """The label of each of the ids. `end`: the id of end-of-text."""
    return {i: _label_of_id(pieces[i], i == end) for i in ids}


def _label_of_id(piece: bytes, is_end: bool) -> str:
    return "end of text" if is_end else label(piece) or "no text"
