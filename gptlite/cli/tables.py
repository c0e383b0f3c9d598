"""Tables that fit a terminal; elsewhere they have their full width.

rich.table has no columns to drop and no cells to shorten in the middle, and takes 0.3 s for the cells of 300 runs.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence

from gptlite.cli.terminal import on_one_line

GAP = 2  # between columns


def terminal_width() -> int | None:
    """Return the columns of the terminal; None if the output goes elsewhere."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


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
) -> str:
    """Return a table with one line per row, from cells by header.

    width: of the terminal, or None for full width. numbers: right-aligned columns. shrinkable, dropped: as for
    `fit_columns`.
    """
    cells = {on_one_line(header): [on_one_line(cell) for cell in (header, *cells)] for header, cells in columns.items()}
    aligned = [
        [_align(cell, size, right=header in numbers) for cell in cells[header]]
        for header, size in fit_columns(cells, width, shrinkable or {}, dropped).items()
    ]
    return "".join((" " * GAP).join(line).rstrip() + "\n" for line in zip(*aligned, strict=True))


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
    """Shorten a text to `width` columns, keeping its beginning and its end, at which numbered names differ."""
    if cell_width(text) <= width:
        return text
    start = len(text)
    while cell_width(text[:start]) > width // 2:
        start -= 1
    end = start
    while cell_width(text[:start]) + 1 + cell_width(text[end:]) > width:
        end += 1
    return f"{text[:start]}…{text[end:]}"


def _align(cell: str, width: int, *, right: bool) -> str:
    cell = shorten_middle(cell, width)
    space = " " * (width - cell_width(cell))
    return space + cell if right else cell + space
