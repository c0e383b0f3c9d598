"""Tables on a terminal that fit its width, and in full elsewhere."""

from __future__ import annotations

import io
import os
import shutil
import sys
from collections.abc import Mapping, Sequence

from rich.cells import cell_len, chop_cells, set_cell_size
from rich.console import Console
from rich.text import Text

GAP = 2  # between columns


def terminal_width() -> int | None:
    """Columns of the terminal; None where output goes elsewhere."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def one_line(text: str) -> str:
    """Without what would break a line or steer the terminal."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)


def fitted(
    columns: Mapping[str, Sequence[str]], width: int | None, *, least: Mapping[str, int], dropped: Sequence[str]
) -> dict[str, int]:
    """How wide each column gets that has a place in `width`; the first of `dropped` leave first.

    least: columns that may be cut, and what must be left of them; what is spare goes to the first of these.
    """
    full = {header: max(map(cell_len, [header, *cells])) for header, cells in columns.items()}
    if width is None:
        return full
    widths = {header: min(size, least.get(header, size)) for header, size in full.items()}
    for header in dropped:
        if _total(widths) <= width:
            break
        widths.pop(header, None)
    for header in least:
        if header in widths:
            widths[header] += max(0, min(full[header] - widths[header], width - _total(widths)))
    return widths


def _total(widths: Mapping[str, int]) -> int:
    return sum(widths.values()) + GAP * (len(widths) - 1)


def table(
    columns: Mapping[str, Sequence[str]],
    widths: Mapping[str, int],
    *,
    numbers: Sequence[str] = (),
    styles: Mapping[str, str] | None = None,
) -> str:
    """A row a line: words to the left, the columns in `numbers` to the right, what is too long cut.

    styles: of cells, by what they say.
    """
    text = Text()
    head = {header: cut_in_the_middle(header, width) for header, width in widths.items()}
    n_rows = len(next(iter(columns.values())))
    for cells in (head, *({header: columns[header][i] for header in widths} for i in range(n_rows))):
        line = Text()
        for header, cell in cells.items():
            line.append(" " * GAP if line else "")
            placed = _placed(cell, widths[header], to_the_right=header in numbers)
            line.append(placed, "bold" if cells is head else (styles or {}).get(cell))
        line.rstrip()
        text.append_text(line).append("\n")
    return coloured(text)


def cut_in_the_middle(text: str, width: int) -> str:
    """A text that keeps its beginning and its end where it is too long: names that are counted differ in their end."""
    if cell_len(text) <= width:
        return text
    start = len(text)
    while cell_len(text[:start]) > width // 2:
        start -= 1
    end = start
    while cell_len(text[:start]) + 1 + cell_len(text[end:]) > width:
        end += 1
    return f"{text[:start]}…{text[end:]}"


def _placed(cell: str, width: int, *, to_the_right: bool) -> str:
    spare = width - cell_len(cell)
    if spare < 0:
        return set_cell_size(cell, width - 1) + "…"
    return " " * spare + cell if to_the_right else cell + " " * spare


def coloured(text: Text) -> str:
    """In colour and bold type on a terminal, unless NO_COLOR is set or it can do neither."""
    file = io.StringIO()
    wanted = sys.stdout.isatty() and not os.environ.get("NO_COLOR")  # Rich alone would leave the bold type
    Console(file=file, force_terminal=wanted, highlight=False).print(text, soft_wrap=True, end="")
    return file.getvalue()


def side_by_side(texts: Mapping[str, str], width: int) -> str:
    """Texts of several lines beside each other, each below its title."""
    each = max(1, (width - GAP * (len(texts) - 1)) // len(texts))
    columns = {
        title: [piece for line in text.split("\n") for piece in chop_cells(one_line(line), each) or [""]]
        for title, text in texts.items()
    }
    longest = max(map(len, columns.values()))
    filled = {one_line(title): lines + [""] * (longest - len(lines)) for title, lines in columns.items()}
    return table(filled, dict.fromkeys(filled, each))
