from __future__ import annotations

import re

import numpy as np
import pytest
import torch

from gptlite.data.batches import Batches
from gptlite.data.eval_windows import EvalWindows
from gptlite.data.tokens import TokenArray
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


def test_the_first_batch_is_that_of_earlier_versions() -> None:
    x, _ = Batches(counting(1000), 64, 8, seed=1337).rows(0)
    assert x[:, 0].tolist() == [609, 737, 673, 97, 865, 225, 929, 161]


def test_an_epoch_sees_every_window_once_across_batches() -> None:
    batches = Batches(counting(100), 8, 4, seed=1)
    # (100 - 8) // 8 = 11 windows
    firsts = torch.cat([batches.rows(step)[0][:, 0] for step in range(11)]).reshape(4, 11)
    for epoch in firsts:
        assert len(set((epoch // 8).tolist())) == 11


def test_a_batch_may_be_larger_than_the_text() -> None:
    x, _ = Batches(counting(9), 8, 3, seed=1).rows(0)
    assert x.tolist() == [list(range(8))] * 3


@pytest.mark.parametrize(
    ("n_tokens", "message"),
    [
        (
            64,
            "train: the text has 64 tokens, but model.block_size 64 needs at least 65. "
            "Set model.block_size to at most 63, or give more text.",
        ),
        (1, "train: the text has 1 token, but model.block_size 64 needs at least 65. Give more text."),
    ],
)
def test_a_text_shorter_than_a_block_names_the_largest_block_size_that_works(n_tokens: int, message: str) -> None:
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        Batches(counting(n_tokens), 64, 8, seed=1)
    if n_tokens > 1:
        assert Batches(counting(n_tokens), n_tokens - 1, 8, seed=1).rows(0)[0].shape == (8, n_tokens - 1)


def test_one_token_cannot_be_scored() -> None:
    message = r"^train: the text has 1 token, but scoring needs at least 2\. Give more text\.$"
    with pytest.raises(DataError, match=message):
        EvalWindows(counting(1), 8)


def test_a_text_from_an_unknown_place_has_an_error_without_one() -> None:
    with pytest.raises(DataError, match=r"^the text has 1 token") as caught:
        EvalWindows(TokenArray(np.zeros(1, np.uint32)), 8)
    assert [problem.where for problem in caught.value.problems] == [None]


def test_ids_outside_a_text_are_a_bug() -> None:
    with pytest.raises(IndexError, match="ids 5 to 9 of 8"):
        counting(8).read(5, 4)
