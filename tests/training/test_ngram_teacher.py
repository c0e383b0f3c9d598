from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence

import numpy as np
import pytest

from gptlite.seeds import mix_arrays
from gptlite.training.ngram_teacher import (
    FOLDS,
    ORDER,
    ORDER_OF_SHORT_TEXT,
    KneserNey,
    NgramTeacher,
    discounts,
    fit_share,
    last_tokens,
    last_words,
)

DRAWS, LETTERS, UNUSED = 20_000, 5, 1  # an id that does not occur
BEFORE = -1  # what stands before the text


@pytest.fixture(scope="module")
def ids() -> list[int]:
    """400 letters of which each follows from the two before it, but for a fifth of them."""
    rng, letters = np.random.default_rng(0), [0, 1]
    for noise, letter in zip(rng.random(398), rng.integers(0, LETTERS, 398), strict=True):
        letters.append(int(letter) if noise < 0.2 else (2 * letters[-1] + letters[-2] + 1) % LETTERS)
    return letters


def draw(ids: Sequence[int], position: int) -> np.ndarray:
    teacher = NgramTeacher(np.array(ids), "abcde\n")
    return teacher.draw(np.full(DRAWS, position), mix_arrays(1, np.arange(DRAWS, dtype=np.uint64)))


def kneser_ney(ids: Sequence[int], uncounted: Collection[int], context: Sequence[int], order: int) -> list[float]:
    """p(w | context) of every w as the paper has it, by dictionaries. uncounted: positions that no n-gram ends at."""
    padded = [BEFORE] * order + list(ids)
    by_length = [Counter(tuple(padded[i : i + order + 1]) for i in range(len(ids)) if i not in uncounted)]
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
    context = ([BEFORE] * order + ids)[position : position + order]
    expected = np.array(kneser_ney(ids, own_part, context, order))
    assert expected.sum() == pytest.approx(1.0)
    V = LETTERS + UNUSED
    model = KneserNey(np.array(ids), V, last_tokens(np.array(ids), V, order))
    drawn = model.draw(np.full(DRAWS, position), np.random.default_rng(1).random(DRAWS))
    parts = np.bincount(drawn, minlength=V) / DRAWS
    assert np.all(np.abs(parts - expected) < 4.5 * np.sqrt(expected * (1 - expected) / DRAWS))
    assert model.probability(np.array([position]))[0] == pytest.approx(expected[ids[position]])


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
        drawn = NgramTeacher(np.arange(length) % 2, "ab").draw(
            np.arange(length), mix_arrays(np.arange(length, dtype=np.uint64))
        )
        assert set(drawn.tolist()) <= {0, 1}


def test_contexts_of_words_know_the_word_so_far_and_the_word_before() -> None:
    text = "The cat, the CAT: catch a cat-nap. Été Été"
    alphabet = sorted(set(text))
    found = last_words(np.array([alphabet.index(c) for c in text]), alphabet)
    known = []
    for position in range(len(text)):
        *words, so_far = re.split(r"[^a-zé]+", text[:position].lower())
        known.append(("", text[:position][-1:], so_far, words[-1:]))
    for n, numbers in enumerate(found):
        contexts = [each[: n + 1] for each in known]
        assert [contexts.index(each) for each in contexts] == [numbers.tolist().index(x) for x in numbers]


def test_the_share_of_a_model_is_how_often_it_was_the_one() -> None:
    # Of kind 2, each model is certain of one place of two. Kind 1 does not occur.
    kind = np.array([0, 0, 0, 2, 2])
    share = fit_share(kind, np.array([0.5, 0.5, 0.5, 1.0, 0.0]), np.array([0.25, 0.25, 0.25, 0.0, 1.0]))
    assert share[2] == 0.5
    assert share[0] == pytest.approx(2.0**-30, rel=1e-3)  # halved in each step, from one half on, by which it is small


def test_both_models_together_predict_a_text_better_than_one(ids) -> None:
    teacher = NgramTeacher(np.array(ids), "abcde\n")
    at = np.arange(len(ids))
    by_tokens, by_words = teacher._by_tokens.probability(at), teacher._by_words.probability(at)
    share = teacher._share[teacher._kind]
    together = np.log((1 - share) * by_tokens + share * by_words).mean()
    assert together > max(np.log(by_tokens).mean(), np.log(by_words).mean())
