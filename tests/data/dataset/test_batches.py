from __future__ import annotations

import re
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from gptlite.data.dataset.batches import Batches, EvalWindows
from gptlite.data.dataset.tokens import TokenArray
from gptlite.errors import DataError


def counting(n_tokens: int) -> TokenArray:
    """Ids 0, 1, 2, ...: each is its own index."""
    return TokenArray(np.arange(n_tokens, dtype=np.uint32), "train")


def test_targets_are_the_inputs_one_later() -> None:
    x, y = Batches(counting(100), 8, 4, seed=1).rows(3)
    assert x.shape == y.shape == (4, 8)
    assert x.dtype == y.dtype == torch.int64
    assert torch.equal(y, x + 1)
    assert (x[:, 1:] == x[:, :-1] + 1).all()


@pytest.mark.parametrize("order", ["shuffle", "random"])
def test_slices_of_a_batch_are_its_rows(order: str) -> None:
    batches = Batches(counting(333), 16, 8, seed=5, order=order)
    x, y = batches.rows(7)
    parts = [batches.rows(7, first, 2) for first in range(0, 8, 2)]
    assert torch.equal(torch.cat([part[0] for part in parts]), x)
    assert torch.equal(torch.cat([part[1] for part in parts]), y)


@pytest.mark.parametrize("order", ["shuffle", "random"])
def test_a_batch_depends_on_seed_and_step_alone(order: str) -> None:
    def batch(seed: int, step: int) -> list[list[int]]:
        batches = Batches(counting(5000), 16, 4, seed=seed, order=order)
        return batches.rows(step)[0].tolist()

    assert batch(1, 2) == batch(1, 2)
    assert batch(1, 2) != batch(1, 3)
    assert batch(1, 2) != batch(2, 2)


@given(
    n_tokens=st.integers(2, 400),
    block_size=st.integers(1, 64),
    batch_size=st.integers(1, 32),
    epoch=st.integers(0, 10**9),
    seed=st.integers(0, 2**63 - 1),
)
def test_any_epoch_sees_every_window_once_whatever_was_read_before(
    n_tokens: int, block_size: int, batch_size: int, epoch: int, seed: int
) -> None:
    assume(block_size < n_tokens)
    n_windows = max(1, n_tokens // block_size - 1)
    row = epoch * n_windows  # the first of the epoch, numbered through all steps
    steps = range(row // batch_size, (row + n_windows - 1) // batch_size + 1)
    # As after a resume at each step: nothing is left of the steps before.
    rows = [Batches(counting(n_tokens), block_size, batch_size, seed).rows(step)[0] for step in steps]
    before = row - steps[0] * batch_size
    starts = torch.cat(rows)[before : before + n_windows, 0].sort().values
    assert (starts.diff() == block_size).all()
    assert starts[0] >= 0
    assert starts[-1] + block_size + 1 <= n_tokens


class Huge:
    """10**11 ids, 200 GB as uint16, each of which is computed when it is read."""

    where = None
    n_tokens = 10**11

    def __init__(self) -> None:
        self.n_read = 0

    def read(self, start: int, length: int) -> np.ndarray:
        self.n_read += length
        return (np.arange(start, start + length) % 50_000).astype(np.uint16)


def peak_bytes(work: Callable[[], object]) -> int:
    """The most memory that Python and numpy hold at a time for it."""
    work()  # what is made once, such as caches, is not counted
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("order", ["shuffle", "random"])
def test_a_huge_text_takes_no_more_memory_than_a_small_one_at_any_step(order: str) -> None:
    huge = Huge()
    batches = Batches(huge, 64, 8, seed=1, order=order)
    small = Batches(counting(1000), 64, 8, seed=1, order=order)
    assert peak_bytes(lambda: Batches(huge, 64, 8, seed=1, order=order)) < 2000
    assert huge.n_read == 0
    one_batch = 8 * 65 * 8  # ids of 8 bytes
    for step in (0, 1, 10**6, 10**12):
        assert peak_bytes(lambda step=step: batches.rows(step)) < peak_bytes(lambda: small.rows(0)) + one_batch
    assert huge.n_read == 4 * 2 * 8 * 65  # of each step, which is read twice here, only its own rows


@pytest.mark.parametrize(
    ("n_tokens", "message"),
    [
        (
            64,
            "train: the text has 64 tokens, but model.block_size 64 needs at least 65. "
            "Use model.block_size=63 or less, or give more text.",
        ),
        (1, "train: the text has 1 token, but model.block_size 64 needs at least 65. Give more text."),
    ],
)
def test_a_text_shorter_than_a_block_names_the_largest_block_size_that_works(n_tokens: int, message: str) -> None:
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        Batches(counting(n_tokens), 64, 8, seed=1)
    if n_tokens > 1:
        assert Batches(counting(n_tokens), n_tokens - 1, 8, seed=1).rows(0)[0].shape == (8, n_tokens - 1)


def test_a_text_from_an_unknown_place_has_an_error_without_one() -> None:
    with pytest.raises(DataError, match=r"^the text has 1 token") as caught:
        EvalWindows(TokenArray(np.zeros(1, np.uint32)), 8)
    assert [problem.where for problem in caught.value.problems] == [None]
