"""Which of two groups of runs is better: Student's t, Welch's and the paired comparison, and how often they err."""

from __future__ import annotations

import itertools
import math
import random
import statistics

import pytest

from gptlite.runs.significance import Comparison, Difference, t_quantile

# Two-sided 95 % quantiles by degrees of freedom: R. A. Fisher and F. Yates, Statistical Tables for Biological,
# Agricultural and Medical Research, table III.
PUBLISHED = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 9: 2.262, 20: 2.086, 30: 2.042, 60: 2.000, 120: 1.980}
PUBLISHED_99 = {1: 63.657, 2: 9.925, 3: 5.841, 10: 3.169, 60: 2.660}


def share_within(t: float, df: int) -> float:
    """P(|T| < t) of Student's t: M. Abramowitz and I. Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4."""
    angle = math.atan(t / math.sqrt(df))
    ratios = [(k - 1) / k * math.cos(angle) ** 2 for k in range(2 + df % 2, df, 2)]
    terms = sum(itertools.accumulate(ratios, lambda term, ratio: term * ratio, initial=1.0))
    if df % 2 == 0:
        return math.sin(angle) * terms
    return 2 / math.pi * (angle + (math.sin(angle) * math.cos(angle) * terms if df > 1 else 0.0))


def test_quantiles_of_student_t_are_those_of_published_tables_and_of_its_distribution():
    assert {df: round(t_quantile(0.95, df), 3) for df in PUBLISHED} == pytest.approx(PUBLISHED, abs=1e-3)
    assert {df: round(t_quantile(0.99, df), 3) for df in PUBLISHED_99} == pytest.approx(PUBLISHED_99, abs=1e-3)
    assert [share_within(t_quantile(0.9, df), df) for df in range(1, 40)] == pytest.approx([0.9] * 39, abs=1e-6)


# Hours of sleep gained with two drugs (Student 1908), as in the examples of t.test in R, which prints t = -1.8608,
# df = 17.776 and a 95 % interval of -3.3654832 to 0.2054832; and of pairs -2.4598858 to -0.7001142.
SLEEP = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0], [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]
# The second of the three examples of Wikipedia's "Welch's t-test": groups of 10 and 20, t = -1.57 and df = 9.9.
UNEQUAL = (
    [17.2, 20.9, 22.6, 18.1, 21.7, 21.4, 23.5, 24.2, 14.7, 21.8],
    [
        *(21.5, 22.8, 21.0, 23.0, 21.6, 23.6, 22.5, 20.7, 23.4, 21.8),
        *(20.7, 21.7, 21.5, 22.5, 23.6, 21.5, 22.5, 23.5, 21.5, 21.8),
    ],
)


@pytest.mark.parametrize(("groups", "t", "df", "digits"), [(SLEEP, -1.8608, 17.776, 5e-4), (UNEQUAL, -1.57, 9.9, 0.05)])
def test_means_are_compared_as_in_published_examples_of_welch(groups, t, df, digits):
    found = Difference.welch(*groups)
    assert found.value / found.error == pytest.approx(t, abs=digits)
    assert found.df == pytest.approx(df, abs=digits)


def test_intervals_are_those_that_r_prints():
    assert Difference.welch(*SLEEP).interval() == pytest.approx((-3.3654832, 0.2054832), abs=1e-3)  # df 17.77
    pairs = list(zip(*SLEEP, strict=True))
    assert Difference.paired(pairs).interval() == pytest.approx((-2.4598858, -0.7001142), abs=1e-6)


def test_equal_scores_have_an_interval_of_no_width():
    assert Difference.welch([0.1, 0.1], [0.1, 0.1, 0.1]).interval() == (0.0, 0.0)
    assert Difference.welch([3.0, 3.0], [1.0, 1.0, 1.0]).interval() == (2.0, 2.0)
    one_varies = Difference.welch([2.0, 2.0, 2.0], [1.0, 3.0])
    assert (one_varies.error, one_varies.df) == pytest.approx((1.0, 1.0))


def compared(a: list[float], b: list[float], margin: float = 0.0, shift: int = 0) -> Comparison:
    """The scores of seeds from 1 on; those of b begin at a later seed."""
    return Comparison(dict(enumerate(a, 1)), dict(enumerate(b, 1 + shift)), margin)


def test_four_common_seeds_decide_by_pairs_and_three_do_not():
    a, b = [2.0, 2.1, 2.2, 2.3], [2.01, 2.115, 2.208, 2.311]  # each seed of b is worse, by less than seeds differ
    assert compared(a[:3], b[:3]).answer == "unknown"
    assert compared(a, b).answer == "better"
    assert compared(b, a).answer == "worse"
    assert compared(a, b, shift=1).answer == "unknown"  # three common seeds, and one more of each
    assert not compared(a, b, shift=1).is_paired


def test_a_difference_is_irrelevant_only_if_all_of_its_interval_is():
    a, b = [2.000, 2.002, 2.004], [2.001, 2.003, 2.005]
    low, high = compared(a, b).difference().interval()
    largest = max(-low, high)
    assert compared(a, b, margin=largest * 1.001).answer == "same"
    assert compared(a, b, margin=largest * 0.999).answer == "unknown"


def test_the_further_seeds_are_the_fewest_that_would_tell():
    a, b = [2.00, 2.02, 2.04], [2.02, 2.04, 2.06]  # standard deviation 0.02, difference 0.02
    found = compared(a, b)
    assert found.answer == "unknown"
    n = found.further_seeds()

    def half(more: int) -> float:
        return t_quantile(0.95, 2 * (2 + more)) * math.sqrt(2 * 0.02**2 / (3 + more))

    assert half(n) < 0.02 < half(n - 1)
    assert compared([2.0, 3.0], [2.5, 2.5001]).further_seeds() is None  # equal means, whatever the number


@pytest.mark.parametrize("ratio", [1, 3])
@pytest.mark.parametrize("n", [2, 3, 5])
def test_equal_settings_are_called_different_in_at_most_one_of_twenty_comparisons(n, ratio):
    rng, trials = random.Random(0), 2000

    def differ(difference: float) -> float:
        """The share of pairs of groups that are told apart."""
        pairs = [
            compared([rng.gauss(0, 1) for _ in range(n)], [rng.gauss(difference, ratio) for _ in range(n)], shift=n)
            for _ in range(trials)
        ]
        return sum(pair.answer != "unknown" for pair in pairs) / trials

    assert differ(0.0) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / trials)
    # Of a difference of two standard deviations (root of the mean variance): 200,000 draws with scipy.
    power = {(2, 1): 0.107, (3, 1): 0.366, (5, 1): 0.768, (2, 3): 0.144, (3, 3): 0.359, (5, 3): 0.705}[n, ratio]
    assert differ(2 * math.sqrt((1 + ratio**2) / 2)) == pytest.approx(power, abs=0.035)


def test_pairs_without_a_difference_are_told_apart_as_rarely():
    rng, trials = random.Random(1), 2000
    found = 0
    for _ in range(trials):
        of_seed = [rng.gauss(0, 1) for _ in range(4)]
        found += compared(*([x + rng.gauss(0, 0.3) for x in of_seed] for _ in range(2))).answer != "unknown"
    assert found / trials <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / trials)


def test_the_noise_of_the_text_is_that_of_its_equal_parts_also_where_they_were_cut_otherwise():
    bits = math.log(2)
    a = [(2 * bits, 1), (4 * bits, 1), (1 * bits, 1), (5 * bits, 1)]
    b = [(1 * bits, 1), (1 * bits, 1), (1 * bits, 1), (1 * bits, 1)]
    found = Difference.over_blocks([a], [b])
    assert (found.value, found.df) == (pytest.approx((1 + 3 + 0 + 4) / 4), 3)
    assert found.error == pytest.approx(statistics.stdev([1, 3, 0, 4]) / 2)
    # Two seeds of A, of which the other is worse by 2 bits everywhere; B's blocks are 3 bytes, of which half is 1.5.
    worse = [(nats + 2 * bits, n_bytes) for nats, n_bytes in a]
    coarse = [(3 * bits, 3), (1 * bits, 1)]
    found = Difference.over_blocks([a, worse], [coarse])
    assert (found.value, found.df) == (pytest.approx((8 + 4) / 4), 1)
    assert found.error == pytest.approx(statistics.stdev([(1 + 3) / 2 + 1, (0 + 4) / 2 + 1]) / math.sqrt(2))


def test_texts_without_parts_or_of_another_size_have_no_noise():
    a = [(1.0, 5000), (1.0, 5000)]
    assert Difference.over_blocks([a], [[(1.0, 5000), (2.0, 4999)]]) is not None  # without its first character
    assert all(Difference.over_blocks([a], [b]) is None for b in [(), [(1.0, 10_000)], [(1.0, 5000), (1.0, 5020)]])
