from __future__ import annotations

import math

import numpy as np
import pytest

from gptlite.errors import ConfigError
from gptlite.inference.sampling import SamplingParams, choose, draw, suppressed_ids
from gptlite.tokenizers.char import CharTokenizer

LOGITS = np.array([2.0, 1.0, 0.0, -1.0, -math.inf, 0.5, 0.5], np.float32)
SEEN = np.array([[True, False, True, False, False, True, False]])


def exact(how: SamplingParams) -> np.ndarray:
    """The distribution to draw from, worked out in the documented order: penalty, temperature, top-k, top-p, min-p."""
    x = LOGITS.astype(np.float64)
    if how.repetition_penalty:
        seen = SEEN[0]
        x[seen] = np.where(x[seen] > 0, x[seen] / how.repetition_penalty, x[seen] * how.repetition_penalty)
    x /= how.temperature
    order = np.argsort(-x, kind="stable")
    if how.top_k:
        x[order[how.top_k :]] = -math.inf
    if how.top_p:
        share = np.exp(x) / np.exp(x).sum()
        x[order[1 + np.flatnonzero(share[order].cumsum() >= how.top_p - 1e-12)[0] :]] = -math.inf
    if how.min_p:
        x[np.exp(x - x.max()) < how.min_p] = -math.inf
    return np.exp(x) / np.exp(x).sum()


@pytest.mark.parametrize(
    "how",
    [
        SamplingParams(temperature=0.7),
        SamplingParams(temperature=1.0, top_k=4),
        SamplingParams(temperature=1.5, top_p=0.8),
        SamplingParams(temperature=2.0, min_p=0.35),
        SamplingParams(temperature=1.0, repetition_penalty=1.4),
        SamplingParams(temperature=1.2, repetition_penalty=3.0, top_k=5, top_p=0.9, min_p=0.1),
    ],
    ids=str,
)
def test_draws_follow_the_exact_distribution_of_every_filter(how):
    n = 20_000
    rngs = [np.random.default_rng(0)] * n
    counts = np.bincount(choose(LOGITS[None].repeat(n, 0), how, rngs, SEEN.repeat(n, 0)), minlength=7)
    expected = n * exact(how)
    assert (counts[expected == 0] == 0).all()
    inside = expected > 0
    chi_square = ((counts - expected)[inside] ** 2 / expected[inside]).sum()
    one_in_a_thousand = {1: 10.8, 2: 13.8, 3: 16.3, 4: 18.5, 5: 20.5}  # by degrees of freedom
    assert chi_square < one_in_a_thousand[inside.sum() - 1]


def test_the_filters_narrow_what_is_left_by_those_before_them():
    # After top-k 2 of (1/2, 1/4, 1/8, 1/8), shares are 2/3 and 1/3: top-p 0.6 leaves the first alone; of all, two.
    logits = np.log([[4.0, 2.0, 1.0, 1.0]])
    rngs = [np.random.default_rng(i) for i in range(200)]
    rows = logits.repeat(200, 0)
    assert set(choose(rows, SamplingParams(temperature=1.0, top_k=2, top_p=0.6), rngs)) == {0}
    assert set(choose(rows, SamplingParams(temperature=1.0, top_p=0.6), rngs)) == {0, 1}


def test_greedy_choice_heeds_the_penalty():
    logits = np.array([[1.0, 0.9, -3.0]])
    seen = np.array([[True, False, False]])
    assert choose(logits, SamplingParams(temperature=0.0), []) == [0]
    assert choose(logits, SamplingParams(temperature=0.0, repetition_penalty=1.2), [], seen) == [1]


def test_the_least_number_that_can_be_drawn_takes_no_token_of_probability_zero():
    class Zero:
        def random(self) -> float:
            return 0.0

    assert draw(np.array([[-math.inf, -math.inf, 0.0, 0.0]]), [Zero()]) == [2]


def test_a_row_of_many_is_filtered_and_drawn_as_it_would_be_alone():
    logits = np.random.default_rng(0).normal(scale=3, size=(9, 600)).round()  # with ties
    for how in (
        SamplingParams(),
        SamplingParams(top_k=40),
        SamplingParams(top_p=0.95),
        SamplingParams(min_p=0.1),
        SamplingParams(temperature=0.0),
    ):
        seeded = [np.random.default_rng(i) for i in range(9)]
        alone = [choose(row[None], how, [np.random.default_rng(i)])[0] for i, row in enumerate(logits)]
        assert choose(logits, how, seeded) == alone


def test_a_vocabulary_of_one_token_leaves_no_choice():
    how = SamplingParams(top_k=5, top_p=0.1, min_p=1.0, repetition_penalty=2.0)
    assert choose(np.array([[-3.0]]), how, [np.random.default_rng(0)], np.array([[True]])) == [0]


def test_ids_that_no_text_produces_are_barred_and_end_of_text_only_where_texts_end():
    tokenizer = CharTokenizer("ab")
    assert suppressed_ids(tokenizer, ends=True).tolist() == [False, False, False]
    assert suppressed_ids(tokenizer, ends=False).tolist() == [False, False, True]


def test_what_cannot_be_done_is_refused_all_at_once():
    with pytest.raises(ConfigError) as refused:
        SamplingParams(0, -1.0, 0, 1.5, 0.0, -2.0, ("a", ""))
    starts = ["max_new_tokens = 0", "temperature = -1.0", "top_k = 0", "top_p = 1.5", "min_p = 0.0"]
    starts += ["repetition_penalty = -2.0", "stop = ('a', '')"]
    assert [p.partition(":")[0] for p in refused.value.problems] == starts
