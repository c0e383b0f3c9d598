"""HTML pages in one file, with style, script and data; a content security policy forbids any network access."""

from __future__ import annotations

import functools
import html
import json
from collections.abc import Mapping
from importlib import resources
from string import Template
from typing import Any

import numpy as np
import numpy.typing as npt


def page(
    name: str,
    title: str,
    about: str,
    texts: Mapping[str, str],
    data: Mapping[str, Any],
    *,
    paints_numbers: bool = False,
    has_script: bool = True,
) -> str:
    """Make the page of `name`.html, .css and, if it has a script, .js in this package.

    about: a line about model and text. texts: HTML for the other $names in the HTML file. data: what the script reads
    as JSON. paints_numbers: include numbers.css and .js.
    """
    parts = ["page", "numbers", name] if paints_numbers else ["page", name]
    made = Template(_read("page.html")).substitute(
        title=title,
        style="".join(_read(f"{part}.css") for part in parts),
        body=Template(_read(f"{name}.html")).substitute(texts, about=html.escape(about)),
        data=script_safe(data),
        script="".join(_read(f"{part}.js") for part in parts) if has_script else "",
    )
    return made.encode("utf-8", "backslashreplace").decode()  # file names need not be UTF-8


def writer_page(name: str, about: str, n_parameters: int, data: Mapping[str, Any]) -> str:
    """Return the page that writes with a model. data: the model, its tokenizer, and the beginning of the first text."""
    title = html.escape(name)
    return page("writer", title, about, {"name": title, "parameters": f"{n_parameters:,}"}, data)


def script_safe(data: Mapping[str, Any]) -> str:
    """Write JSON that is safe inside a script element, in ASCII.

    >>> script_safe({"text": "</script>"})
    '{"text":"\\\\u003c/script>"}'
    """
    return json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def rounded(numbers: npt.ArrayLike, digits: int = 4) -> Any:
    """Return a number, or nested lists of numbers, rounded to significant digits to keep pages small."""
    array = np.asarray(numbers)
    return [rounded(row, digits) for row in array] if array.ndim else float(f"{array.item():.{digits}g}")


@functools.cache
def _read(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text("utf-8")
