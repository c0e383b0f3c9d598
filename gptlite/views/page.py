"""A page in one file: text, style, script and numbers together. It needs no network, and forbids itself to use one."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from importlib import resources
from string import Template
from typing import Any

import numpy as np
import numpy.typing as npt


def page(name: str, title: str, words: Mapping[str, str], data: Mapping[str, Any]) -> str:
    """The page made of `name`.html, .css and .js beside this file: $words fill its HTML and must be HTML themselves;
    its script finds `data` as JSON."""
    text = Template(_read("page.html")).substitute(
        title=title,
        style=_read("page.css") + _read(f"{name}.css"),
        body=Template(_read(f"{name}.html")).substitute(words),
        data=script_safe(data),
        script=_read("page.js") + _read(f"{name}.js"),
    )
    return text.encode("utf-8", "backslashreplace").decode()  # names of files need not be UTF-8


def script_safe(data: Mapping[str, Any]) -> str:
    """JSON that can stand inside a script element, in ASCII.

    >>> script_safe({"text": "</script>"})
    '{"text":"\\\\u003c/script>"}'
    """
    return json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def few_digits(numbers: npt.NDArray[Any], digits: int = 4) -> Any:
    """Nested lists of the numbers, with so many significant digits: a page is read by people and sent by mail.

    >>> few_digits(np.array([[1.23456, 1234567.0]]))
    [[1.235, 1235000.0]]
    """
    if numbers.ndim > 1:
        return [few_digits(row, digits) for row in numbers]
    return [float(f"{x:.{digits}g}") for x in numbers.tolist()]


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


def labels(pieces: list[bytes], ids: npt.NDArray[np.integer[Any]], end: int) -> dict[int, str]:
    """The label of each of the ids. `end`: the id of end-of-text."""
    return {i: _label_of_id(pieces[i], i == end) for i in np.unique(ids).tolist()}


def _label_of_id(piece: bytes, is_end: bool) -> str:
    return "end of text" if is_end else label(piece) or "no text"


@functools.cache
def _read(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text("utf-8")
