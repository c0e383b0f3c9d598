from __future__ import annotations

import gzip
import lzma
import math
from collections import Counter
from itertools import pairwise

import pyppmd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptlite.data.preparing import baselines
from gptlite.data.preparing.baselines import BaselineMeter, ppmd


def test_four_equally_frequent_bytes_take_two_bits_and_a_single_one_none() -> None:
    meter = BaselineMeter()
    meter.feed(b"abcd" * 8)
    assert meter.finish().unigram == 2.0
    meter = BaselineMeter()
    meter.feed(b"aaaa")
    assert str(meter.finish().unigram) == "0.0"


def test_gzip_and_xz_are_the_sizes_at_level_nine_however_the_text_is_cut() -> None:
    text = b"".join(f"line {i * i}\n".encode() for i in range(3000))
    meter = BaselineMeter()
    for start in range(0, len(text), 777):
        meter.feed(text[start : start + 777])
    lines = meter.finish()
    assert lines.gzip == pytest.approx(8 * len(gzip.compress(text, 9)) / len(text), abs=1e-4)
    assert lines.xz == pytest.approx(8 * len(lzma.compress(text, preset=9)) / len(text), abs=1e-4)


def test_the_bigram_codes_each_byte_after_the_one_before_and_the_first_by_the_unigram() -> None:
    # Of "aabb", a comes first, half of all bytes: 1 bit. After a comes a or b: 1 bit each. After b comes b: none.
    meter = BaselineMeter()
    meter.feed(b"aabb")
    lines = meter.finish()
    assert (lines.unigram, lines.bigram) == (1.0, 0.75)


@given(st.binary(min_size=1, max_size=60), st.integers(1, 9), st.integers(1, 9))
def test_entropies_equal_those_of_a_table_of_counts_however_the_text_is_cut(text, piece, at_once) -> None:
    meter = BaselineMeter()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(baselines, "_BLOCK", at_once)
        for start in range(0, len(text), piece):
            meter.feed(text[start : start + piece])
    alone, pairs, before = Counter(text), Counter(pairwise(text)), Counter(text[:-1])
    bits = [-math.log2(alone[byte] / len(text)) for byte in text]
    lines = meter.finish()
    assert lines.unigram == pytest.approx(sum(bits) / len(text), abs=1e-4)
    bits[1:] = [-math.log2(pairs[pair] / before[pair[0]]) for pair in pairwise(text)]
    assert lines.bigram == pytest.approx(sum(bits) / len(text), abs=1e-4)


def compressed_bytes(order: int, text: bytes) -> int:
    encoder = pyppmd.Ppmd7Encoder(order, 1 << 24)
    return len(encoder.encode(text) + encoder.flush())


def test_ppmd_is_what_a_file_of_both_texts_has_more_than_one_of_the_training_text() -> None:
    training = b"".join(f"line {i * i % 1009}: {i * 7}\n".encode() for i in range(1500))
    text = b"".join(f"line {i * i % 1009}: {i * 7}\n".encode() for i in range(1500, 1700))
    cut = len(training) - len(training) // 10
    gains = {
        order: compressed_bytes(order, training) - compressed_bytes(order, training[:cut]) for order in baselines.ORDERS
    }
    order = min(gains, key=lambda order: gains[order])
    more = compressed_bytes(order, training + text) - compressed_bytes(order, training)
    assert ppmd(training, text) == pytest.approx(8 * more / len(text), abs=8 * 2 / len(text))
    assert ppmd(training, text) < 0.9 * 8 * compressed_bytes(order, text) / len(text)


def test_the_order_of_ppmd_is_chosen_on_the_training_text() -> None:
    phrase = b"".join(bytes([97 + i * i % 26]) for i in range(90))
    assert ppmd(phrase * 40, phrase * 4) < 0.1  # long contexts tell where in the phrase it is
