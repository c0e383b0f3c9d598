from __future__ import annotations

import gzip
import lzma

import pytest

from gptlite.data.reference import ReferenceMeter


def test_four_equal_shares_are_two_bits_and_one_value_none() -> None:
    meter = ReferenceMeter()
    meter.feed(b"abcd" * 8)
    assert meter.lines().unigram == 2.0
    meter = ReferenceMeter()
    meter.feed(b"aaaa")
    assert str(meter.lines().unigram) == "0.0"


def test_gzip_and_xz_are_the_sizes_at_level_nine_however_the_text_is_cut() -> None:
    text = b"".join(f"line {i * i}\n".encode() for i in range(3000))
    meter = ReferenceMeter()
    for start in range(0, len(text), 777):
        meter.feed(text[start : start + 777])
    lines = meter.lines()
    assert lines.gzip == pytest.approx(8 * len(gzip.compress(text, 9)) / len(text), abs=1e-4)
    assert lines.xz == pytest.approx(8 * len(lzma.compress(text, preset=9)) / len(text), abs=1e-4)
