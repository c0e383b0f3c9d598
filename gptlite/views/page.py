"""A page in one file: text, style, script and numbers together. It needs no network, and forbids itself to use one."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from importlib import resources
from string import Template
from typing import Any

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


@functools.cache
def _read(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text("utf-8")
