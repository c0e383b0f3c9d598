"""The overlap of two texts, against sets of all strings of 50 bytes."""

from __future__ import annotations

import random

import numpy as np
import pytest

from gptlite.data.preparing import overlap as module
from gptlite.data.preparing.overlap import LENGTH, Overlap, OverlapMeter, choose_share, sample


def strings(texts: list[str]) -> set[bytes]:
    raw = [text.encode() for text in texts]
    return {each[at : at + LENGTH] for each in raw for at in range(len(each) - LENGTH + 1)}


def words(rng: random.Random, n: int) -> str:
    return "".join(rng.choice(("to ", "be ", "or ", "nöt ", "日本 ", "\n")) for _ in range(n))


def measure(train: list[list[str]], val: list[list[str]], share: int) -> Overlap:
    meter = OverlapMeter()
    for split, groups in (("train", train), ("val", val)):
        for texts in groups:
            meter.add(split, sample([text.encode() for text in texts], share))
    return meter.finish()


def test_every_string_of_a_small_text_is_compared() -> None:
    rng = random.Random(0)
    train = [words(rng, 300), "short", words(rng, 200)]
    val = [words(rng, 100), train[0][40:140], "", "x" * LENGTH, "x" * (LENGTH - 1)]
    expected = Overlap(len(strings(val)), len(strings(val) & strings(train)))
    assert 0 < expected.found < expected.sampled
    assert measure([train], [val], 1) == expected
    assert measure([train[1:], train[:1]], [val[3:], val[:3]], 1) == expected


def test_nothing_is_compared_across_documents() -> None:
    lines = ["a short line"] * 20
    assert measure([lines], [lines], 1) == Overlap(0, 0)


def test_a_sample_of_a_large_text_has_the_overlap_of_the_whole() -> None:
    rng = random.Random(1)
    old, new = ("".join(rng.choices(letters, k=100_000)) for letters in ("abcdefghijklm ", "nopqrstuvwxyz\n"))
    train = old + "".join(rng.choices("abcdefghijklm ", k=100_000))
    found = measure([[train]], [[old, new]], choose_share(1 << 40))
    assert 400 < found.sampled < 1600  # one of 256
    assert found.found / found.sampled == pytest.approx(0.5, abs=0.1)  # whatever strings begin with


@pytest.mark.parametrize("share", [4, 32, 128])
def test_a_sample_is_fair_to_strings_that_begin_alike(share: int) -> None:
    """Indented lines are in both texts, and the others in one: a sample without the frequent blanks would miss that."""
    rng = random.Random(3)
    letters = {"old": "abcdefghi ", "new": "jklmnopqr "}

    def line(of: str) -> str:
        return f"{'':{rng.choice((8, 12, 16))}}{''.join(rng.choices(letters[of], k=30))}\n"

    def lines(of: str) -> str:
        return "".join(line(of) for _ in range(4000))

    old, new = lines("old"), lines("new").replace("  ", "")
    expected = measure([[old]], [[old, new]], 1)
    found = measure([[old]], [[old, new]], share)
    assert 0.5 < expected.found / expected.sampled < 0.7
    assert found.found / found.sampled == pytest.approx(expected.found / expected.sampled, rel=0.1)


def test_memory_is_bounded_and_the_order_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(2)
    pieces = [[words(rng, 400)] for _ in range(30)]
    everything = measure(pieces, pieces[:10], 1)
    assert everything.sampled == everything.found == len(strings([text for texts in pieces[:10] for text in texts]))
    monkeypatch.setattr(module, "_LIMIT", 500)
    bounded = measure(pieces, pieces[:10], 1)
    assert bounded == measure(pieces[::-1], pieces[9::-1], 1)
    assert 50 < bounded.sampled == bounded.found <= 500


def test_a_hash_depends_on_every_byte() -> None:
    text = "it was the best of times, it was the worst of times"[:LENGTH]
    (original,) = sample([text.encode()], 1)
    for at in range(LENGTH):
        (changed,) = sample([(text[:at] + "#" + text[at + 1 :]).encode()], 1)
        assert changed != original
    assert sample([text.encode()], 1).dtype == np.uint64
