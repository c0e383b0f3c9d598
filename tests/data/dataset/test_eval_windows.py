"""The tokens that are scored, and the context of each."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gptlite.data.dataset import batches
from gptlite.data.dataset.batches import IGNORE_INDEX, EvalWindows, eval_batches
from gptlite.data.dataset.tokens import TokenArray
from gptlite.errors import ConfigError
from gptlite.tokenizers.folder import Ids

END = 99
Scored = Counter[tuple[tuple[int, ...], int]]  # (context, target): how often

documents_of = st.lists(st.lists(st.integers(0, 9), max_size=12), min_size=1, max_size=6)
window_and_stride = st.integers(1, 7).flatmap(lambda size: st.tuples(st.just(size), st.integers(1, size)))


def stored(documents: list[list[int]]) -> TokenArray:
    """As in prepared text: an end-of-text before each."""
    return TokenArray(np.array([i for document in documents for i in (END, *document)], np.uint16), "val")


def expected(chain: list[int], block_size: int, stride: int) -> Iterator[tuple[tuple[int, ...], int]]:
    """Every token of a document but its first, one after the other: by the definition of the windows."""
    for place in range(1, len(chain)):
        window = next(k for k in range(place) if k * stride + block_size >= place)
        yield tuple(chain[window * stride : place]), chain[place]


def scored(cut: EvalWindows, batch_size: int) -> Scored:
    """The contexts and targets of all batches."""
    found: Scored = Counter()
    for _, (x, y) in eval_batches(cut, batch_size):
        assert x.shape == y.shape
        assert 1 <= len(x) <= batch_size
        for inputs, targets in zip(x.tolist(), y.tolist(), strict=True):
            found.update((tuple(inputs[: t + 1]), y) for t, y in enumerate(targets) if y != IGNORE_INDEX)
    return found


@settings(max_examples=50)
@given(documents_of, window_and_stride, st.integers(1, 5))
def test_every_token_and_every_end_is_scored_once_after_its_own_document_alone(documents, sizes, batch_size):
    block_size, stride = sizes
    cut = EvalWindows(stored([*documents, [1]]), block_size, stride=stride, end=END)
    chains = [[END, *document, END] for document in [*documents, [1]]]
    assert scored(cut, batch_size) == Counter(pair for c in chains for pair in expected(c, block_size, stride))


@settings(max_examples=50)
@given(st.lists(st.integers(0, 9), min_size=2, max_size=40), window_and_stride, st.integers(1, 5))
def test_of_a_single_text_every_token_but_the_first_is_scored_once(text, sizes, batch_size):
    block_size, stride = sizes
    cut = EvalWindows(TokenArray(np.array(text, np.uint32), "text"), block_size, stride=stride)
    assert scored(cut, batch_size) == Counter(expected(text, block_size, stride))


@given(window_and_stride, st.integers(2, 60))
def test_overlapping_windows_give_each_token_the_context_that_they_promise(sizes, length):
    block_size, stride = sizes
    cut = EvalWindows(TokenArray(np.arange(length, dtype=np.uint32), "text"), block_size, stride=stride)
    for context, target in scored(cut, 4):
        assert len(context) >= min(target, block_size - stride + 1)


def test_batches_are_no_wider_than_their_longest_window_and_lengths_come_together():
    documents = [[1] * 7, [2], [3] * 7, [4], [5] * 7, [6]]
    shapes = [tuple(x.shape) for _, (x, _) in eval_batches(EvalWindows(stored(documents), 8, end=END), 3)]
    assert shapes == [(3, 8), (3, 2)]


@settings(max_examples=30)
@given(documents_of, st.integers(1, 4), st.integers(1, 4))
def test_processes_that_take_every_nth_batch_score_everything_once(documents, batch_size, world_size):
    tokens = stored([*documents, [1]])

    def batches(rank: int, of: int) -> list[list[list[list[int]]]]:
        cut = EvalWindows(tokens, 4, end=END)
        return [[x.tolist(), y.tolist()] for _, (x, y) in eval_batches(cut, batch_size, first=rank, every=of)]

    shared = [batches(rank, world_size) for rank in range(world_size)]
    alone = batches(0, 1)
    assert [shared[i % world_size][i // world_size] for i in range(len(alone))] == alone
    assert sum(map(len, shared)) == len(alone)


class Watched:
    """A text that records the longest read."""

    def __init__(self, tokens: TokenArray) -> None:
        self._tokens, self.where, self.n_tokens = tokens, tokens.where, tokens.n_tokens
        self.longest = 0

    def read(self, start: int, length: int) -> Ids:
        self.longest = max(self.longest, length)
        return self._tokens.read(start, length)


def test_a_text_of_any_length_is_read_in_pieces(monkeypatch):
    text = np.random.default_rng(0).choice([1, 2, 3, 4, END], 500).astype(np.uint16)
    at_once = scored(EvalWindows(TokenArray(text, "val"), 5, stride=2, end=END), 3)
    monkeypatch.setattr("gptlite.data.dataset.tokens._PIECE", 16)
    monkeypatch.setattr(batches, "_BLOCK", 10)
    watched = Watched(TokenArray(text, "val"))
    assert scored(EvalWindows(watched, 5, stride=2, end=END), 3) == at_once
    assert watched.longest == 16


@pytest.mark.parametrize("stride", [0, -1, 9])
def test_a_stride_outside_one_to_block_size_is_refused(stride):
    text = TokenArray(np.arange(20, dtype=np.uint32), "text")
    message = f"stride: a stride of {stride} is not possible. Use 1 to model.block_size (8)."
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        EvalWindows(text, 8, stride=stride)
