"""Every filter against a plain reference, a row at a time in Python, on 1,000 random rows of logits."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from gptlite.inference.filters import keep_min_p, keep_top_k, keep_top_p, penalise_repetition, temper


def random_rows(seed: int) -> list[list[float]]:
    """Rows of 1 to 12 logits: with ties, with -inf among them, and now and then nothing but -inf."""
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
def test_top_k_keeps_the_k_largest_and_of_equals_the_lower_ids(k):
    for row, order in zip(ROWS, IN_ORDER, strict=True):
        assert filtered(keep_top_k, row, k) == only(row, order[:k])


@pytest.mark.parametrize("p", [0.01, 0.3, 0.77, 1.0])
def test_top_p_keeps_the_shortest_likeliest_list_that_reaches_p(p):
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


def test_top_p_adds_nothing_to_tokens_that_hold_exactly_p():
    assert filtered(keep_top_p, [0.0] * 4, 0.5) == [0.0, 0.0, -math.inf, -math.inf]  # a quarter each


@pytest.mark.parametrize("p", [0.001, 0.1, 0.5, 1.0])
def test_min_p_keeps_what_has_that_share_of_the_largest_probability(p):
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
def test_a_temperature_divides_every_distance_from_the_largest(temperature):
    for row in ROWS:
        expected = [(x - max(row)) / temperature if x > -math.inf else x for x in row]
        np.testing.assert_allclose(filtered(temper, row, temperature), expected, rtol=1e-12)


@pytest.mark.parametrize("penalty", [0.5, 1.0, 1.3])
def test_a_penalty_makes_what_was_seen_less_likely_whatever_the_sign_of_its_logit(penalty):
    rng = np.random.default_rng(1)
    for row in ROWS:
        seen = rng.random(len(row)) < 0.5
        got = penalise_repetition(np.array([row]), seen[None], penalty)[0]
        expected = [(x / penalty if x > 0 else x * penalty) if s else x for x, s in zip(row, seen, strict=True)]
        assert got.tolist() == expected


def test_a_nucleus_of_more_than_the_first_hundreds_is_found_whole():
    logits = np.arange(5000)[None] / -5000  # nearly flat: p needs about p x 5,000 ids
    weights = np.exp(logits[0])
    reached = np.cumsum(weights) / weights.sum()
    for p in (0.01, 0.3, 0.9, 1.0):
        assert int((keep_top_p(logits, p) > -math.inf).sum()) == min(int((reached < p).sum()) + 1, 5000)


def test_the_repetition_penalty_is_that_of_transformers():
    from transformers import RepetitionPenaltyLogitsProcessor

    logits = torch.randn(4, 9, generator=torch.Generator().manual_seed(0))
    texts = torch.tensor([[0, 1, 1], [2, 3, 8], [4, 4, 4], [7, 0, 5]])
    seen = torch.zeros(4, 9, dtype=torch.bool).scatter_(1, texts, True)
    theirs = RepetitionPenaltyLogitsProcessor(1.7)(texts, logits)
    np.testing.assert_allclose(penalise_repetition(logits.numpy(), seen.numpy(), 1.7), theirs.numpy(), rtol=1e-6)
