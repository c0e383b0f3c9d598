"""The filters against plain references on 1,000 random rows of logits; the draw against exact distributions."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gptlite.config.training import SampleSection
from gptlite.inference.sampling import (
    apply_temperature,
    choose,
    draw,
    keep_min_p,
    keep_top_k,
    keep_top_p,
    penalise_repetition,
)


def random_rows(seed: int) -> list[list[float]]:
    """Rows of 1 to 12 logits, some with ties, some with -inf, and a few that are -inf throughout."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(1000):
        row = rng.normal(scale=rng.choice([0.1, 3, 30]), size=rng.integers(1, 13))
        if rng.random() < 0.5:
            row = row.round()  # ties
        row[rng.random(row.size) < rng.choice([0, 0.3, 0.3, 1], p=[0.4, 0.3, 0.2, 0.1])] = -math.inf
        rows.append(row.tolist())
    return rows


ROWS = random_rows(0)
IN_ORDER = [sorted(range(len(row)), key=lambda i, row=row: (-row[i], i)) for row in ROWS]


def filtered(keep, row: list[float], *arguments: float) -> list[float]:
    return keep(np.array([row]), *arguments)[0].tolist()


def probabilities(row: list[float]) -> np.ndarray:
    weights = np.exp(np.array(row) - max(row))
    return weights / weights.sum()


def only(row: list[float], kept: list[int]) -> list[float]:
    return [x if i in kept else -math.inf for i, x in enumerate(row)]


@pytest.mark.parametrize("k", [1, 2, 5, 12, 1000])
def test_top_k_keeps_the_k_largest_and_of_equal_ones_the_lower_ids(k):
    for row, order in zip(ROWS, IN_ORDER, strict=True):
        assert filtered(keep_top_k, row, k) == only(row, order[:k])


@pytest.mark.parametrize("p", [0.01, 0.3, 0.77, 1.0])
def test_top_p_keeps_the_fewest_most_likely_tokens_that_reach_p(p):
    for row, order in zip(ROWS, IN_ORDER, strict=True):
        kept = filtered(keep_top_p, row, p)
        if max(row) == -math.inf:
            assert kept == row
            continue
        inside = [i for i in order if kept[i] > -math.inf]
        share = probabilities(row)
        assert kept == only(row, inside)
        assert inside == order[: len(inside)]
        assert len(inside) >= 1
        assert sum(share[inside]) >= p - 1e-9 or all(share[order[len(inside) :]] == 0)
        assert sum(share[inside[:-1]]) < p + 1e-9


@pytest.mark.parametrize("p", [0.001, 0.1, 0.5, 1.0])
def test_min_p_keeps_tokens_with_that_fraction_of_the_largest_probability(p):
    for row in ROWS:
        kept = filtered(keep_min_p, row, p)
        # x >= largest + log p, but for logits within rounding of the border.
        sure = [i for i, x in enumerate(row) if x > max(row) + math.log(p) + 1e-9 or x == max(row)]
        borderline = [i for i, x in enumerate(row) if abs(x - max(row) - math.log(p)) <= 1e-9]
        assert only(row, sure) == only(kept, [i for i in range(len(row)) if i in sure or i not in borderline])
        if max(row) > -math.inf:
            share = probabilities(row)
            assert all(share[i] >= p * share.max() * (1 - 1e-9) for i, x in enumerate(kept) if x > -math.inf)


@pytest.mark.parametrize("temperature", [1e-9, 0.5, 1.0, 7.0])
def test_a_temperature_divides_the_distances_from_the_largest(temperature):
    for row in ROWS:
        expected = [(x - max(row)) / temperature if x > -math.inf else x for x in row]
        np.testing.assert_allclose(filtered(apply_temperature, row, temperature), expected, rtol=1e-12)


@pytest.mark.parametrize("penalty", [0.5, 1.0, 1.3])
def test_a_penalty_makes_seen_tokens_less_likely_for_logits_of_either_sign(penalty):
    rng = np.random.default_rng(1)
    for row in ROWS:
        seen = rng.random(len(row)) < 0.5
        got = penalise_repetition(np.array([row]), seen[None], penalty)[0]
        expected = [(x / penalty if x > 0 else x * penalty) if s else x for x, s in zip(row, seen, strict=True)]
        assert got.tolist() == expected


def test_top_p_finds_a_nucleus_of_thousands_of_tokens_and_stops_at_exactly_p():
    assert filtered(keep_top_p, [0.0] * 4, 0.5) == [0.0, 0.0, -math.inf, -math.inf]  # a quarter each
    logits = np.arange(5000)[None] / -5000  # nearly flat: p needs about p x 5,000 ids
    weights = np.exp(logits[0])
    reached = np.cumsum(weights) / weights.sum()
    for p in (0.01, 0.3, 0.9, 1.0):
        assert int((keep_top_p(logits, p) > -math.inf).sum()) == min(int((reached < p).sum()) + 1, 5000)


LOGITS = np.array([2.0, 1.0, 0.0, -1.0, -math.inf, 0.5, 0.5], np.float32)
SEEN = np.array([[True, False, True, False, False, True, False]])


def exact(params: SampleSection) -> np.ndarray:
    """The distribution to draw from, worked out in the documented order: penalty, temperature, top-k, top-p, min-p."""
    x = LOGITS.astype(np.float64)
    if params.repetition_penalty:
        seen = SEEN[0]
        x[seen] = np.where(x[seen] > 0, x[seen] / params.repetition_penalty, x[seen] * params.repetition_penalty)
    x /= params.temperature
    order = np.argsort(-x, kind="stable")
    if params.top_k:
        x[order[params.top_k :]] = -math.inf
    if params.top_p:
        share = np.exp(x) / np.exp(x).sum()
        x[order[1 + np.flatnonzero(share[order].cumsum() >= params.top_p - 1e-12)[0] :]] = -math.inf
    if params.min_p:
        x[np.exp(x - x.max()) < params.min_p] = -math.inf
    return np.exp(x) / np.exp(x).sum()


@pytest.mark.parametrize(
    "params",
    [
        SampleSection(temperature=0.7),
        SampleSection(temperature=1.0, top_k=4),
        SampleSection(temperature=1.5, top_p=0.8),
        SampleSection(temperature=2.0, min_p=0.35),
        SampleSection(temperature=1.0, repetition_penalty=1.4),
        SampleSection(temperature=1.2, repetition_penalty=3.0, top_k=5, top_p=0.9, min_p=0.1),
    ],
    ids=str,
)
def test_draws_follow_the_exact_distribution_of_every_filter(params):
    n = 20_000
    rngs = [np.random.default_rng(0)] * n
    counts = np.bincount(choose(LOGITS[None].repeat(n, 0), params, rngs, SEEN.repeat(n, 0)), minlength=7)
    expected = n * exact(params)
    assert (counts[expected == 0] == 0).all()
    inside = expected > 0
    chi_square = ((counts - expected)[inside] ** 2 / expected[inside]).sum()
    one_in_a_thousand = {1: 10.8, 2: 13.8, 3: 16.3, 4: 18.5, 5: 20.5}  # by degrees of freedom
    assert chi_square < one_in_a_thousand[inside.sum() - 1]


def test_each_filter_acts_on_what_the_ones_before_it_left():
    # After top-k 2 of (1/2, 1/4, 1/8, 1/8), shares are 2/3 and 1/3: top-p 0.6 leaves the first alone; of all, two.
    logits = np.log([[4.0, 2.0, 1.0, 1.0]])
    rngs = [np.random.default_rng(i) for i in range(200)]
    rows = logits.repeat(200, 0)
    assert set(choose(rows, SampleSection(temperature=1.0, top_k=2, top_p=0.6), rngs)) == {0}
    assert set(choose(rows, SampleSection(temperature=1.0, top_p=0.6), rngs)) == {0, 1}


def test_greedy_choice_applies_the_penalty():
    logits = np.array([[1.0, 0.9, -3.0]])
    seen = np.array([[True, False, False]])
    assert choose(logits, SampleSection(temperature=0.0), []) == [0]
    assert choose(logits, SampleSection(temperature=0.0, repetition_penalty=1.2), [], seen) == [1]


def test_a_uniform_number_of_zero_draws_no_token_of_probability_zero():
    class Zero:
        def random(self) -> float:
            return 0.0

    assert draw(np.array([[-math.inf, -math.inf, 0.0, 0.0]]), [Zero()]) == [2]


def test_rows_of_a_batch_are_filtered_and_drawn_independently():
    logits = np.random.default_rng(0).normal(scale=3, size=(9, 600)).round()  # with ties
    for params in (
        SampleSection(),
        SampleSection(top_k=40),
        SampleSection(top_p=0.95),
        SampleSection(min_p=0.1),
        SampleSection(temperature=0.0),
    ):
        seeded = [np.random.default_rng(i) for i in range(9)]
        alone = [choose(row[None], params, [np.random.default_rng(i)])[0] for i, row in enumerate(logits)]
        assert choose(logits, params, seeded) == alone
