"""Tokens as people read them."""

from __future__ import annotations

import pytest

from gptlite.tokenizers.base import label, labels, readable


@pytest.mark.parametrize(
    ("piece", "shown", "on_one_line"),
    [
        (b" the", " the", "␣the"),
        (b"a\n\tb", "a\n\tb", "a↵⇥b"),
        ("日".encode()[:2], r"\xe6\x97", r"\xe6\x97"),
        ("é日".encode()[:-1], r"é\xe6\x97", r"é\xe6\x97"),
        ("שלום".encode(), "שלום", "שלום"),
        ("\u202eabc".encode(), r"\u202eabc", r"\u202eabc"),
        (b"\x00\r\x1b", r"\x00\r\x1b", r"\x00\r\x1b"),
        (b"<b>&\"'", "<b>&\"'", "<b>&\"'"),
    ],
    ids=repr,
)
def test_a_token_is_shown_so_that_it_can_be_read(piece, shown, on_one_line):
    assert readable(piece) == shown
    assert label(piece) == on_one_line


def test_ids_without_text_say_so():
    pieces = [b"a", b"", b""]
    assert labels(pieces, [2, 0, 1, 0], end=2) == {0: "a", 1: "no text", 2: "end of text"}
