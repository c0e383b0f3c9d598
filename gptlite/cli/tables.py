"""Tables that fit a terminal; elsewhere they have their full width.

rich.table has no columns to drop and no cells to shorten in the middle, and takes 0.3 s for the cells of 300 runs.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence

from gptlite.cli.terminal import on_one_line

GAP = 2  # between columns
LONGEST = 24  # columns of a cell in a table that does not fit


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
    columns: Mapping[str, Sequence[str]], *, numbers: Sequence[str] = (), dropped: Sequence[str] = ()
) -> str:
    """Return a table with one line per row, from cells by header.

    numbers: right-aligned columns. dropped: columns to leave out of a narrow terminal, in this order.
    """
    cells = {on_one_line(header): [on_one_line(cell) for cell in (header, *cells)] for header, cells in columns.items()}
    widths = {header: max(map(cell_width, column)) for header, column in cells.items()}
    terminal = terminal_width()
    if terminal is not None and _total(widths) > terminal:
        widths = {header: min(size, LONGEST) for header, size in widths.items()}
        for header in dropped:
            if _total(widths) > terminal:
                widths.pop(header, None)
    aligned = [
        [_align(cell, size, right=header in numbers) for cell in cells[header]] for header, size in widths.items()
    ]
    return "".join((" " * GAP).join(line).rstrip() + "\n" for line in zip(*aligned, strict=True))


def _total(widths: Mapping[str, int]) -> int:
    return sum(widths.values()) + GAP * (len(widths) - 1)


def shorten_middle(text: str, width: int) -> str:
    """Shorten a text to `width` columns, keeping its beginning and its end, at which numbered names differ."""
    if cell_width(text) <= width:
        return text
    from rich.cells import set_cell_size

    start = set_cell_size(text, width // 2)
    return f"{start}…{set_cell_size(text[::-1], width - width // 2 - 1)[::-1]}"


def _align(cell: str, width: int, *, right: bool) -> str:
    cell = shorten_middle(cell, width)
    space = " " * (width - cell_width(cell))
    return space + cell if right else cell + space
