"""Text that is no HTML, numbers that stay numbers."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gptlite.views.page import few_digits, label, labels, readable, script_safe


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
    assert labels(pieces, np.array([2, 0, 1, 0]), end=2) == {0: "a", 1: "no text", 2: "end of text"}


def test_json_inside_a_script_ends_no_script_and_reads_back():
    data = {"text": "</script><!--<b>&amp;\u2028\ud800\"'\\"}
    written = script_safe(data)
    assert "<" not in written
    assert written.isascii()
    assert json.loads(written) == data


def test_numbers_keep_four_significant_digits():
    assert few_digits(np.array([[1.23456, -0.000123456], [123456.0, 0.0]])) == [[1.235, -0.0001235], [123500.0, 0.0]]
    assert few_digits(np.array([2 / 3], np.float32), 3) == [0.667]


def test_a_number_that_json_has_not_is_refused_instead_of_written():
    with pytest.raises(ValueError, match="not JSON compliant"):
        script_safe({"x": float("nan")})
