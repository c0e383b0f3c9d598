"""The verdict about a validation curve, against curves whose slope is worked out by hand."""

from __future__ import annotations

import pytest

from gptlite.planning.verdict import Verdict, compare, explain, judge
from gptlite.runs.summary import Evaluation


def curve(*points: tuple[int, float | None, float]) -> list[Evaluation]:
    """(step, seconds, bits per byte) of each evaluation."""
    return [Evaluation(step, seconds, score) for step, seconds, score in points]


LARGE = 10**9  # tokens of validation text, which leave no noise


def test_a_diary_that_is_learned_by_heart_overfits_from_its_best_step_on() -> None:
    verdict = judge(curve((25, 6.0, 2.5), (100, 24.0, 3.1), (203, 50.0, 5.15)), val_tokens=LARGE)
    assert verdict.better == "sizes"
    assert list(verdict.lines) == [
        "overfitted: the score rose by 106% in the 178 steps since step 25. More text, a larger model.dropout or fewer "
        "steps help.",
        "checkpoint best, which `sample` and `eval` use, is that of step 25; latest is for training on",
    ]


def test_a_score_that_still_falls_is_said_with_how_much() -> None:
    in_seconds = "the score still fell by 5.0% in the last 30 s: more training should help"
    falls = curve((10, 30.0, 3.0), (20, 60.0, 2.0), (30, 90.0, 1.9))
    assert judge(falls, val_tokens=LARGE) == Verdict((in_seconds,), "time")
    per_minute = "the score still fell by 2.5% per minute at the end: more training should help"
    falls = curve((10, 30.0, 3.0), (20, 60.0, 2.0), (30, 180.0, 1.9))
    assert judge(falls, val_tokens=LARGE) == Verdict((per_minute,), "time")


def test_an_end_soon_after_an_evaluation_is_compared_with_the_one_before() -> None:
    falls = curve((84, 18.0, 3.4), (112, 24.0, 3.25), (140, 30.0, 3.1), (148, 32.0, 3.0999))
    assert judge(falls, val_tokens=LARGE).lines == (
        "the score still fell by 4.6% in the last 8 s: more training should help",
    )


def test_a_fall_within_the_noise_of_the_validation_text_is_none() -> None:
    falls = curve((10, 30.0, 3.0), (20, 60.0, 2.0), (30, 90.0, 1.99))  # by 0.5 %
    assert judge(falls, val_tokens=2_000) == Verdict()  # 1 / sqrt(2,000) is 2.2 %
    assert len(judge(falls, val_tokens=1_000_000).lines) == 1  # 0.1 %


def test_what_was_read_once_is_not_overfitted() -> None:
    rises = curve((4, 2.0, 3.0), (5, 3.0, 3.2))
    assert judge(rises, val_tokens=LARGE, epochs=0.3) == Verdict()
    assert judge(rises, val_tokens=LARGE, epochs=2.0).lines[0].startswith("overfitted: the score rose by 7%")


def test_where_training_ended_because_the_text_is_short_more_of_it_is_named_instead() -> None:
    falls = curve((10, 30.0, 3.0), (20, 60.0, 2.0), (30, 90.0, 1.5))
    verdict = judge(falls, val_tokens=LARGE, ends_early=True)
    (line,) = verdict.lines
    assert verdict.better == "text"
    assert line.startswith("more text would make it better, more time would not")
    assert "longer" not in line
    as_bpe = judge(falls, val_tokens=LARGE, ends_early=True, characters_follow=True)
    assert as_bpe == Verdict(("with more minutes so short a text is read as characters, which ends better",), "time")


@pytest.mark.parametrize(
    ("score", "line"),
    [
        (1.2, "better than xz -9 (1.360) and gzip -9 (1.900)"),
        (1.36, "better than gzip -9 (1.900), worse than xz -9 (1.360)"),
        (2.0, "worse than xz -9 (1.360) and gzip -9 (1.900)"),
    ],
)
def test_a_score_is_told_beside_the_compressors(score: float, line: str) -> None:
    assert compare(score, {"PPMd": None, "xz -9": 1.36, "gzip -9": 1.9}) == f"beside compressors of that text: {line}"


def test_a_score_is_explained_and_what_a_longer_text_would_give() -> None:
    words = "such a model writes words, many of them invented, and no sense yet"
    assert explain(2.58, 4.64, 40_000) == (
        f"{words}. 40 KB of prose rarely give more; 200 KB gave mostly real words and short phrases, but no sense yet"
    )
    assert explain(2.58, 4.64, 400_000) == words  # which can give more
    assert explain(2.58, 4.64, 4_000) == words  # of which nothing is known
    assert explain(4.0, 4.64, 40_000) == "such a model writes letters in about the right numbers, but no words yet"
    assert explain(0.0, 4.64, 11_000_000) == "such a model writes lines and passages like those of the text"


@pytest.mark.parametrize(
    "points",
    [
        [],
        [(10, 5.0, 3.0)],
        [(10, 60.0, 1.5), (20, 120.0, 1.5)],
        [(10, 60.0, 1.5), (20, 120.0, 1.51)],  # two thirds of a per cent above the best
        [(10, 60.0, 1.5), (20, 7260.0, 1.4)],  # 0.06 % per minute
        [(10, None, 2.0), (20, None, 1.0)],
        [(10, 60.0, 2.0), (20, 60.0, 1.0)],
    ],
    ids=["none", "one", "flat", "noise", "slow", "no clock", "no time"],
)
def test_nothing_is_said_without_grounds(points: list[tuple[int, float | None, float]]) -> None:
    assert judge(curve(*points), val_tokens=LARGE) == Verdict()
