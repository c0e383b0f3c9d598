"""Tables: widths, alignment, shortening."""

from __future__ import annotations

import pytest

from gptlite.cli.tables import fit_columns, format_table, shorten_middle


def test_a_table_fits_the_terminal_and_drops_columns_in_their_order():
    columns = {"run": ["a-very-long-name-001"], "state": ["finished"], "at": ["100"], "differs": ["lr 0.1, n_layer 12"]}
    shrinkable, dropped = {"run": 8, "differs": 10}, ["at", "state", "differs"]
    assert fit_columns(columns, None, shrinkable, dropped) == {"run": 20, "state": 8, "at": 3, "differs": 18}
    for width in range(8, 70):
        widths = fit_columns(columns, width, shrinkable, dropped)
        lines = format_table(columns, width, shrinkable=shrinkable, dropped=dropped).splitlines()
        assert len(lines) == 2
        assert all(len(line) <= width for line in lines)
        assert lines[1].startswith("a-very-long-name-001"[: widths["run"] // 2])
        assert ("at" in widths) <= ("state" in widths) <= ("differs" in widths)
    assert list(fit_columns(columns, 30, shrinkable, dropped)) == ["run", "state", "differs"]


@pytest.mark.parametrize("width", [None, 80])
def test_numbers_are_aligned_to_the_right_and_wide_characters_take_two_columns(width):
    columns = {"run": ["日本", "a"], "step": ["7", "12345"], "state": ["?", "running"]}
    assert format_table(columns, width, numbers=["step"]).splitlines() == [
        "run    step  state",
        "日本      7  ?",
        "a     12345  running",
    ]


def test_cells_are_shortened_in_the_middle():
    assert shorten_middle("sweep-001", 9) == "sweep-001"
    assert shorten_middle("a-very-long-name-001", 10) == "a-ver…-001"
    assert shorten_middle("日本語-001", 8) == "日本…001"
    columns = {"run": ["a-very-long-name-001"], "differs": ["lr 0.1, n_layer 12"]}
    shown = format_table(columns, 22, shrinkable={"run": 10, "differs": 10})
    assert shown.splitlines()[1] == "a-ver…-001  lr 0.…r 12"
