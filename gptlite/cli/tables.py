"""Tables: rich draws them on a terminal, in its width; elsewhere they are plain text in full width."""

from __future__ import annotations

import io
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Literal

GAP = 2  # between columns
PAGE_WIDTH = 100  # where text is wrapped and there is no terminal


def terminal_width() -> int | None:
    """Return the columns of the terminal; None if the output goes elsewhere."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def printable(text: str) -> str:
    """Replace what would break a line or control the terminal."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)


def cell_width(text: str) -> int:
    """Return the terminal columns that a text takes: two for wide characters."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def format_table(
    columns: Mapping[str, Sequence[str]],
    width: int | None,
    *,
    numbers: Sequence[str] = (),
    shrinkable: Mapping[str, int] | None = None,
    dropped: Sequence[str] = (),
    styles: Mapping[str, str] | None = None,
) -> str:
    """Return a table with one line per row, from cells by header.

    width: of the terminal, or None for plain text in full width. numbers: right-aligned columns. shrinkable, dropped:
    as for `fit_columns`. styles: of cells, by their text. The first column is shortened in the middle, as numbered
    names differ at their end; the others at the end.
    """
    cells = {printable(header): [printable(cell) for cell in column] for header, column in columns.items()}
    widths = fit_columns(cells, width, shrinkable or {}, dropped)
    first = next(iter(cells))
    if first in widths:
        cells[first] = [shorten_middle(cell, widths[first]) for cell in cells[first]]
    if width is None:
        return _plain_table(cells, widths, numbers)
    return _rich_table(cells, widths, numbers, styles or {})


def fit_columns(
    columns: Mapping[str, Sequence[str]], width: int | None, shrinkable: Mapping[str, int], dropped: Sequence[str]
) -> dict[str, int]:
    """Return the widths of the columns that fit into `width`.

    shrinkable: columns that may be shortened, with their smallest width; spare columns go to the first of these.
    dropped: columns to leave out of a narrow terminal, in this order.
    """
    full = {header: max(map(cell_width, [header, *cells])) for header, cells in columns.items()}
    if width is None:
        return full
    widths = {header: min(size, shrinkable.get(header, size)) for header, size in full.items()}
    for header in dropped:
        if _total(widths) <= width:
            break
        widths.pop(header, None)
    for header in shrinkable:
        if header in widths:
            widths[header] += max(0, min(full[header] - widths[header], width - _total(widths)))
    return widths


def _total(widths: Mapping[str, int]) -> int:
    return sum(widths.values()) + GAP * (len(widths) - 1)


def shorten_middle(text: str, width: int) -> str:
    """Shorten a text to `width` columns, keeping its beginning and its end."""
    if cell_width(text) <= width:
        return text
    start = len(text)
    while cell_width(text[:start]) > width // 2:
        start -= 1
    end = start
    while cell_width(text[:start]) + 1 + cell_width(text[end:]) > width:
        end += 1
    return f"{text[:start]}…{text[end:]}"


def _plain_table(columns: Mapping[str, Sequence[str]], widths: Mapping[str, int], numbers: Sequence[str]) -> str:
    padded = []
    for header, size in widths.items():
        spaces = [(text, " " * (size - cell_width(text))) for text in (header, *columns[header])]
        padded.append([space + text if header in numbers else text + space for text, space in spaces])
    return "".join((" " * GAP).join(line).rstrip() + "\n" for line in zip(*padded, strict=True))


def _rich_table(
    columns: Mapping[str, Sequence[str]], widths: Mapping[str, int], numbers: Sequence[str], styles: Mapping[str, str]
) -> str:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="bold")
    for header, size in widths.items():
        title = Text(shorten_middle(header, size))
        justify: Literal["left", "right"] = "right" if header in numbers else "left"
        table.add_column(title, justify=justify, width=size, no_wrap=True, overflow="ellipsis")
    for row in zip(*(columns[header] for header in widths), strict=True):
        table.add_row(*(Text(cell, styles.get(cell, "")) for cell in row))
    file = io.StringIO()
    wanted = sys.stdout.isatty() and not os.environ.get("NO_COLOR")  # rich alone would keep the bold type
    Console(file=file, force_terminal=wanted, highlight=False, width=_total(widths)).print(table)
    return "".join(f"{line.rstrip()}\n" for line in file.getvalue().split("\n")[:-1])


def side_by_side(texts: Mapping[str, str], width: int | None) -> str:
    """Return texts of several lines next to each other, each under its title, wrapped to equal widths."""
    from rich.cells import chop_cells

    each = max(1, ((width or PAGE_WIDTH) - GAP * (len(texts) - 1)) // len(texts))
    columns = {
        title: [piece for line in text.split("\n") for piece in chop_cells(printable(line), each) or [""]]
        for title, text in texts.items()
    }
    longest = max(map(len, columns.values()))
    filled = {title: lines + [""] * (longest - len(lines)) for title, lines in columns.items()}
    return format_table(filled, width, shrinkable=dict.fromkeys(filled, each))
