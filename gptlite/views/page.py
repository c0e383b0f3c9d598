"""HTML pages in one file, with style, script and data; a content security policy forbids any network access."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from importlib import resources
from string import Template
from typing import Any

import numpy.typing as npt


def page(
    name: str, title: str, texts: Mapping[str, str], data: Mapping[str, Any], *, paints_numbers: bool = False
) -> str:
    """Make the page of `name`.html, .css and .js in this package.

    texts: HTML for the $names in the HTML file. data: what the script reads as JSON. paints_numbers: include
    numbers.css and .js.
    """
    parts = ["page", "numbers", name] if paints_numbers else ["page", name]
    made = Template(_read("page.html")).substitute(
        title=title,
        style="".join(_read(f"{part}.css") for part in parts),
        body=Template(_read(f"{name}.html")).substitute(texts),
        data=script_safe(data),
        script="".join(_read(f"{part}.js") for part in parts),
    )
    return made.encode("utf-8", "backslashreplace").decode()  # file names need not be UTF-8


def script_safe(data: Mapping[str, Any]) -> str:
    """Write JSON that is safe inside a script element, in ASCII.

    >>> script_safe({"text": "</script>"})
    '{"text":"\\\\u003c/script>"}'
    """
    return json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def rounded(numbers: npt.NDArray[Any], digits: int = 4) -> Any:
    """Nested lists of the numbers, rounded to significant digits to keep pages small."""
    if numbers.ndim > 1:
        return [rounded(row, digits) for row in numbers]
    return [float(f"{x:.{digits}g}") for x in numbers.tolist()]


@functools.cache
def _read(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text("utf-8")
