from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

import numpy as np
import pytest

from gptlite.seeds import mix_arrays
from gptlite.training.ngram_teacher import FOLDS, ORDER, ORDER_OF_SHORT_TEXT, NgramTeacher, discounts

DRAWS, LETTERS, UNUSED = 20_000, 5, 1  # an id that does not occur


@pytest.fixture(scope="module")
def ids() -> list[int]:
    """400 letters of which each follows from the two before it, but for a fifth of them."""
    rng, letters = np.random.default_rng(0), [0, 1]
    for noise, letter in zip(rng.random(398), rng.integers(0, LETTERS, 398), strict=True):
        letters.append(int(letter) if noise < 0.2 else (2 * letters[-1] + letters[-2] + 1) % LETTERS)
    return letters


def draw(ids: Sequence[int], position: int, order: int | None = None, n: int = DRAWS) -> np.ndarray:
    teacher = NgramTeacher(np.array(ids), LETTERS + UNUSED, order)
    return teacher.draw(np.full(n, position), mix_arrays(1, np.arange(n, dtype=np.uint64)))


def kneser_ney(ids: Sequence[int], uncounted: Collection[int], context: Sequence[int], order: int) -> list[float]:
    """p(w | context) of every w as the paper has it, by dictionaries. uncounted: positions that no n-gram ends at."""
    by_length = [Counter(tuple(ids[i - order : i + 1]) for i in range(order, len(ids)) if i not in uncounted)]
    for _ in range(order):
        by_length.insert(0, Counter(gram[1:] for gram in by_length[0]))  # how many different tokens stand before it
    p = [1 / (LETTERS + UNUSED)] * (LETTERS + UNUSED)
    for n, counts in enumerate(by_length[: len(context) + 1]):
        taken = dict(zip(counts, discounts(np.array(list(counts.values()))), strict=True))
        after = [gram for gram in counts if gram[:-1] == tuple(context[len(context) - n :])]
        if total := sum(counts[gram] for gram in after):
            p = [sum(taken[gram] for gram in after) / total * x for x in p]
            for gram in after:
                p[gram[-1]] += (counts[gram] - taken[gram]) / total
    return p


@pytest.mark.parametrize("order", [ORDER, ORDER_OF_SHORT_TEXT])
@pytest.mark.parametrize("position", [0, 3, 40, 205, 399])
def test_draws_have_the_probabilities_of_kneser_ney_counted_in_the_other_parts(ids, position, order) -> None:
    own_part = [i for i in range(len(ids)) if i * FOLDS // len(ids) == position * FOLDS // len(ids)]
    expected = np.array(kneser_ney(ids, own_part, ids[max(0, position - order) : position], order))
    assert expected.sum() == pytest.approx(1.0)
    drawn = np.bincount(draw(ids, position, order), minlength=LETTERS + UNUSED) / DRAWS
    assert np.all(np.abs(drawn - expected) < 4.5 * np.sqrt(expected * (1 - expected) / DRAWS))


def test_a_place_does_not_teach_itself(ids) -> None:
    with_a_rare_one = [*ids[:200], LETTERS, *ids[201:]]
    assert (draw(with_a_rare_one, 200) == LETTERS).mean() < 0.02
    assert (draw(ids[:40] * 20, 205) == ids[5]).mean() > 0.9  # the other parts have it nineteen times


def test_the_discounts_are_those_of_the_paper() -> None:
    # n1 = 4, n2 = 2, n3 = n4 = 1: Y = 4 / (4 + 2 * 2), D1 = 1 - 2 Y 2/4, D2 = 2 - 3 Y 1/2, D3 = 3 - 4 Y 1/1
    counts = np.array([0, 1, 1, 1, 1, 2, 2, 3, 4, 9])
    assert discounts(counts).tolist() == [0.0, 0.5, 0.5, 0.5, 0.5, 1.25, 1.25, 1.0, 1.0, 1.0]
    assert discounts(np.array([0, 2, 2, 4])).tolist() == [0.0, 0.75, 0.75, 0.75]  # a text that is there twice


def test_the_shortest_texts_have_a_teacher() -> None:
    for length in (1, 2, 3, 7):
        drawn = NgramTeacher(np.arange(length) % 2, 2).draw(
            np.arange(length), mix_arrays(np.arange(length, dtype=np.uint64))
        )
        assert set(drawn.tolist()) <= {0, 1}
