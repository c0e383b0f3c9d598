"""Tokens as text that a page, a table or a chart can show."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def readable(piece: bytes) -> str:
    """Return the text of a token, with newlines, tabs and blanks as they are.

    Parts of characters, control characters and marks that change the direction of writing become escape sequences.

    >>> readable(b"a\\n"), readable(b"\\xe6\\x97"), readable("\\u202e".encode())
    ('a\\n', '\\\\xe6\\\\x97', '\\\\u202e')
    """
    text = piece.decode(errors="backslashreplace")
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def label(piece: bytes) -> str:
    """Return the text of a token on one line, with a symbol for each blank, newline and tab.

    >>> label(b" the\\n")
    '␣the↵'
    """
    return readable(piece).translate({ord(" "): "␣", ord("\n"): "↵", ord("\t"): "⇥"})


def labels(pieces: Sequence[bytes], ids: Iterable[int], end: int) -> dict[int, str]:
    """Return labels by id. `end` is the id of end-of-text."""
    return {i: "end of text" if i == end else label(pieces[i]) or "no text" for i in ids}
