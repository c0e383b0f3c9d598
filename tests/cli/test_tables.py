"""Tables: widths, alignment, shortening."""

from __future__ import annotations

import pytest

from gptlite.cli import terminal
from gptlite.cli.runs.table import short_value
from gptlite.cli.terminal import format_table, shorten_middle


def test_a_table_fits_the_terminal_and_drops_columns_in_their_order(monkeypatch):
    long = "a-very-long-name-of-a-run-001"
    columns = {"run": [long], "state": ["finished"], "at": ["100"], "differs": ["lr 0.1, n_layer 12"]}
    shown = {}
    for width in (None, *range(24, 70)):
        monkeypatch.setattr(terminal, "terminal_width", lambda width=width: width)
        header, row = format_table(columns, dropped=["at", "state", "differs"]).splitlines()
        assert width is None or max(len(header), len(row)) <= width
        shown[width] = header.split()
        assert (long in row) is (width is None or width >= 64)
        assert row.startswith("a-very-long-")
    assert shown[None] == shown[69] == [*columns]
    assert (shown[56], shown[46], shown[30]) == (["run", "state", "differs"], ["run", "differs"], ["run"])


def test_numbers_are_aligned_to_the_right_and_wide_characters_take_two_columns():
    columns = {"run": ["日本", "a"], "step": ["7", "12345"], "state": ["?", "running"]}
    assert format_table(columns, numbers=["step"]).splitlines() == [
        "run    step  state",
        "日本      7  ?",
        "a     12345  running",
    ]


def test_of_a_path_the_last_part_is_shown_and_of_a_checkpoint_its_run():
    assert short_value("texts/book.txt") == "book.txt"
    assert short_value("/home/ann/runs/base/checkpoints/step-00000600") == "base"


@pytest.mark.parametrize(
    ("text", "width", "short"),
    [("sweep-001", 9, "sweep-001"), ("a-very-long-name-001", 10, "a-ver…-001"), ("日本語-001", 8, "日本…001")],
)
def test_cells_are_shortened_in_the_middle(text, width, short):
    assert shorten_middle(text, width) == short
