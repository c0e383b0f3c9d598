from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptlite.data.preparing.corpus import SplitPlan, character_boundary, document_hashes, plan_split

BIG = 10**9


def plan(hashes: list[float], sizes: list[int], val_fraction: float, val_max_bytes: int = BIG) -> SplitPlan:
    return plan_split(np.array(hashes), np.array(sizes, np.int64), val_fraction, val_max_bytes)


def test_a_hash_is_the_first_53_bits_of_sha256_as_a_fraction() -> None:
    bits = f"{int(hashlib.sha256(b'abc').hexdigest(), 16):0256b}"[:53]
    digest = np.array([hashlib.sha256(b"abc").digest()[:16]], "V16")
    assert document_hashes(digest).tolist() == [int(bits, 2) / 2**53]


def test_documents_below_the_threshold_are_validation() -> None:
    result = plan([0.05, 0.5, 0.1, 0.9, 0.3, 0.7, 0.8, 0.6, 0.4, 0.2], [10] * 10, 0.1)
    assert result.cuts.tolist() == [0, *[10] * 9]  # 0.1 is not below 0.1
    assert (result.rule.rule, result.rule.threshold) == ("document_hash", 0.1)


@pytest.mark.parametrize(
    ("sizes", "rule"),
    [
        ([50, 950], "document_hash"),  # half of the 100 asked for
        ([49, 951], "tail_of_each_document"),
        ([200, 800], "document_hash"),  # twice
        ([201, 799], "tail_of_each_document"),
    ],
)
def test_validation_between_half_and_twice_the_target_is_kept(sizes: list[int], rule: str) -> None:
    assert plan([0.01, 0.99], sizes, 0.1).rule.rule == rule


def test_otherwise_each_document_gives_its_last_fraction() -> None:
    result = plan([0.5, 0.6], [1000, 55], 0.1)
    assert result.cuts.tolist() == [900, 50]  # a tail is rounded down
    assert result.rule.threshold == 0.1


@pytest.mark.parametrize(
    ("hashes", "sizes", "cap", "cuts"),
    [
        ([0.04, 0.01, 0.03, 0.02, 0.9], [10, 10, 10, 10, 60], 25, [10, 0, 10, 0, 60]),
        ([0.01, 0.02, 0.03, 0.9], [10, 10, 10, 70], 20, [0, 0, 10, 70]),  # they fill the cap exactly
        ([0.01, 0.02, 0.02, 0.9], [10, 10, 10, 70], 20, [0, 10, 10, 70]),  # equal documents stay on one side
    ],
)
def test_the_cap_lowers_the_threshold_until_the_documents_fit(
    hashes: list[float], sizes: list[int], cap: int, cuts: list[int]
) -> None:
    assert plan(hashes, sizes, 0.4, cap).cuts.tolist() == cuts


def test_the_cap_holds_for_tails() -> None:
    assert plan([0.5, 0.6], [1000, 3000], 0.1, 40).cuts.tolist() == [990, 2970]
    assert plan([0.5], [1000], 0.1, 30).cuts.tolist() == [970]


def test_something_is_left_to_train_on_when_every_hash_is_low() -> None:
    result = plan([0.1, 0.2], [100, 100], 0.5)
    assert result.rule.rule == "tail_of_each_document"
    assert result.cuts.tolist() == [50, 50]


def test_a_single_document_gives_its_tail() -> None:
    assert plan([0.0], [1_115_394], 0.1).cuts.tolist() == [1_003_854]  # as int(0.9 * n)
    assert plan([0.0], [100], 0.07).cuts.tolist() == [93]  # in floats, (1 - 0.07) * 100 is 92.99999999999999
    assert plan([0.0], [100], 0.1).rule.rule == "tail_of_the_document"


def test_a_cut_inside_a_character_moves_after_it() -> None:
    text = "ab\u20accd".encode()
    assert [character_boundary(text, at) for at in range(len(text) + 1)] == [0, 1, 2, 5, 5, 5, 6, 7]
    result = SplitPlan(plan([0.0], [7], 0.5).rule, np.array([3]))
    assert result.parts(0, text) == ("ab\u20ac".encode(), b"cd")


@given(st.text(min_size=1), st.floats(0.001, 0.5), st.integers(1, 50))
def test_parts_are_text_and_join_to_the_document(text: str, val_fraction: float, cap: int) -> None:
    raw = text.encode("utf-8", "replace")
    train, val = plan([0.0], [len(raw)], val_fraction, cap).parts(0, raw)
    assert train.decode() + val.decode() == raw.decode()
    assert len(val) <= cap
    assert len(val) <= val_fraction * len(raw) + 1


@given(
    st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 1000)), min_size=2),
    st.floats(0.001, 0.5),
    st.integers(1, 5000),
)
def test_validation_never_exceeds_the_cap_or_twice_the_target(
    documents: list[tuple[float, int]], val_fraction: float, cap: int
) -> None:
    sizes = [size for _, size in documents]
    result = plan([place for place, _ in documents], sizes, val_fraction, cap)
    val_bytes = sum(sizes) - int(result.cuts.sum())
    assert val_bytes <= cap
    assert val_bytes <= 2 * val_fraction * sum(sizes) + 1e-6
    assert result.cuts.max() > 0
    assert all(0 <= cut <= size for cut, size in zip(result.cuts, sizes, strict=True))
    if result.rule.rule == "document_hash":
        assert [cut == 0 for cut in result.cuts] == [place < result.rule.threshold for place, _ in documents]
