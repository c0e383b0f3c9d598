"""The HTML page that holds a model and writes with it."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any

from gptlite.views.page import page


def writer_page(name: str, about: str, n_parameters: int, data: Mapping[str, Any]) -> str:
    """Return the page. data: the model and its tokenizer as plain data, and the beginning of the first text."""
    title = html.escape(name)
    return page("writer", title, about, {"name": title, "parameters": f"{n_parameters:,}"}, data)
