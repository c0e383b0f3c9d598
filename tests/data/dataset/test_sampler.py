from __future__ import annotations

import math
from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gptlite.data.dataset.sampler import permute, random_starts, shuffled_starts, windows_per_epoch
from gptlite.seeds import mix, splitmix64

MASK = 2**64 - 1


def reference_splitmix64(x: int) -> int:
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def reference_mix(*words: int | bytes) -> int:
    result = 0
    for word in words:
        result = reference_splitmix64(result ^ (int.from_bytes(word, "little") if isinstance(word, bytes) else word))
    return result


def reference_permutation(index: int, size: int, seed: int, epoch: int) -> int:
    """The formula of the module's docstring, number by number."""
    a = math.ceil(math.sqrt(size))
    b = math.ceil(size / a)
    while True:
        left, right = divmod(index, b)
        for turn in range(8):
            if turn % 2 == 0:
                left = (left + reference_mix(seed, b"permute", epoch, turn, right) % a) % a
            else:
                right = (right + reference_mix(seed, b"permute", epoch, turn, left) % b) % b
        index = left * b + right
        if index < size:
            return index


def order_of(size: int, seed: int, epoch: int) -> list[int]:
    index = np.arange(size, dtype=np.uint64)
    return permute(index, size, seed, np.full(size, epoch, np.uint64)).tolist()


def test_splitmix64_gives_the_published_numbers() -> None:
    seeds = np.array([0, 0x9E3779B97F4A7C15, 0x3C6EF372FE94F82A], np.uint64)
    assert splitmix64(seeds).tolist() == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


def test_mix_folds_its_words() -> None:
    assert mix(1, 2, 2**64 - 1) == reference_mix(1, 2, MASK)
    assert len({mix(1, 2), mix(2, 1), mix(1, 2, 0), mix(1)}) == 4


@given(st.integers(1, 200), st.integers(0, 2**63 - 1), st.integers(0, 2**40))
def test_a_permutation_is_the_documented_one(size: int, seed: int, epoch: int) -> None:
    order = order_of(size, seed, epoch)
    assert sorted(order) == list(range(size))
    assert order == [reference_permutation(index, size, seed, epoch) for index in range(size)]


@given(st.integers(1, 2**40), st.integers(0, 2**63 - 1), st.integers(0, 2**40), st.data())
def test_any_place_of_a_permutation_of_any_size_is_computed_alone(
    size: int, seed: int, epoch: int, data: st.DataObject
) -> None:
    index = data.draw(st.integers(0, size - 1))
    (place,) = permute(np.array([index], np.uint64), size, seed, np.array([epoch], np.uint64)).tolist()
    assert place == reference_permutation(index, size, seed, epoch)


def test_the_stream_is_that_of_earlier_versions() -> None:
    assert order_of(10, seed=1337, epoch=0) == [2, 8, 5, 1, 4, 0, 9, 6, 7, 3]
    rows = np.arange(8, dtype=np.uint64)
    assert shuffled_starts(rows, 1000, 64, 1337).tolist() == [609, 737, 673, 97, 865, 225, 929, 161]
    assert random_starts(rows, 1000, 64, 1337).tolist() == [63, 427, 125, 224, 621, 597, 478, 622]


def test_every_position_of_the_text_is_seen_over_the_epochs() -> None:
    n_tokens, block_size = 50, 8
    rows = np.arange(200 * windows_per_epoch(n_tokens, block_size), dtype=np.uint64)
    starts = shuffled_starts(rows, n_tokens, block_size, seed=1)
    inputs = {start + i for start in starts.tolist() for i in range(block_size)}
    assert inputs == set(range(n_tokens - 1))  # all but the last token, which is only a target


def test_offsets_are_uniform() -> None:
    # 4 windows and offsets 0 .. 3
    firsts = shuffled_starts(np.arange(4000 * 4, dtype=np.uint64), 20, 4, seed=7).reshape(4000, 4).min(axis=1)
    counts = np.bincount(firsts)
    assert len(counts) == 4
    assert chi_square(counts) < 16.3  # exceeded once in 1000 with 3 degrees of freedom


def test_windows_are_equally_frequent_at_every_index_of_an_epoch() -> None:
    epochs, size = 3000, 5
    orders = permute(
        np.tile(np.arange(size, dtype=np.uint64), epochs), size, 11, np.repeat(np.arange(epochs, dtype=np.uint64), size)
    ).reshape(epochs, size)
    for place in range(size):
        assert chi_square(np.bincount(orders[:, place])) < 18.5  # once in 1000 with 4 degrees of freedom
    pairs = Counter(map(tuple, orders[:, :2].tolist()))
    assert chi_square(np.array(list(pairs.values()))) < 43.8  # 19 degrees: neighbours are independent too
    assert len(pairs) == 20


def test_random_starts_are_uniform_over_all_that_fit() -> None:
    starts = random_starts(np.arange(20000, dtype=np.uint64), 14, 4, seed=5)
    counts = np.bincount(starts)
    assert len(counts) == 10
    assert chi_square(counts) < 27.9  # once in 1000 with 9 degrees of freedom


def chi_square(counts: np.ndarray) -> float:
    expected = counts.sum() / len(counts)
    return float(((counts - expected) ** 2 / expected).sum())
