"""Which windows of the text step s sees: integer arithmetic alone, so equal on every machine, rank and version.

N tokens, windows of T = block_size inputs. A window at s reads ids s .. s + T (the last only as a target), so starts
lie in 0 .. N - T - 1. Rows are numbered through all steps: g = step * batch_size + row.

shuffle   W = max(1, (N - T) // T) windows per epoch; epoch e = g // W, place i = g % W:
              start = offset(e) + T * permutation(e, i),   offset(e) = mix(seed, "offset", e) mod (N - T * W)
          Windows of one epoch never overlap, each comes once, and the last one ends inside: offset + T * W <= N - 1.
          The slack N - 1 - T * W is at least T - 1 where N >= 2 T, so that windows begin anywhere over the epochs.
random    start = mix(seed, "random", g) mod (N - T)

mix(a, b, c...) folds splitmix64 over its words. permutation(e, .) is a Feistel network on pairs (l, r) with
l < A = ceil(sqrt(W)), r < B = ceil(W / A), number l * B + r. Round k = 0 .. 7, each of which can be undone:
    k even: l += mix(seed, "permute", e, k, r) mod A, taken mod A;   k odd: r += mix(seed, "permute", e, k, l) mod B
It permutes A * B >= W numbers; one that falls on W or above is sent through again until it falls below (cycle
walking), which permutes 0 .. W - 1.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
import numpy.typing as npt

from gptlite.seeds import U64, mix_arrays, splitmix64

# A word of its own for each use of the seed, so that no two share a stream.
_OFFSET, _RANDOM, _PERMUTE = (int.from_bytes(word, "little") for word in (b"offset", b"random", b"permute"))
_ROUNDS = 8


def permute(index: U64, size: int, seed: int, epoch: U64) -> U64:
    """Where `index` (n,), each below `size`, goes under the permutation of its epoch (n,)."""
    a = math.isqrt(size - 1) + 1
    b = -(-size // a)
    keys = [mix_arrays(seed, _PERMUTE, epoch, turn) for turn in range(_ROUNDS)]
    result = _feistel(index, a, b, keys)
    while (outside := result >= size).any():
        result[outside] = _feistel(result[outside], a, b, [key[outside] for key in keys])
    return result


def _feistel(index: U64, a: int, b: int, keys: list[U64]) -> U64:
    left, right = index // np.uint64(b), index % np.uint64(b)
    for turn, key in enumerate(keys):
        if turn % 2 == 0:
            left = (left + splitmix64(key ^ right) % np.uint64(a)) % np.uint64(a)
        else:
            right = (right + splitmix64(key ^ left) % np.uint64(b)) % np.uint64(b)
    return left * np.uint64(b) + right


class Sampler(Protocol):
    """A rule that says where each row's window starts."""

    def starts(self, rows: U64) -> npt.NDArray[np.int64]:
        """Starts of the windows of rows (n,), numbered through all steps: (n,)."""
        ...


class ShuffledSampler:
    """Each window once per epoch, in an order and with an offset of the epoch's own."""

    def __init__(self, n_tokens: int, block_size: int, seed: int) -> None:
        self.n_windows = max(1, (n_tokens - block_size) // block_size)
        self._block_size, self._seed = block_size, seed
        self._offsets = n_tokens - block_size * self.n_windows

    def starts(self, rows: U64) -> npt.NDArray[np.int64]:
        """See Order."""
        epoch, index = np.divmod(rows, np.uint64(self.n_windows))
        offset = mix_arrays(self._seed, _OFFSET, epoch) % np.uint64(self._offsets)
        window = permute(index, self.n_windows, self._seed, epoch)
        return (offset + window * np.uint64(self._block_size)).astype(np.int64)


class RandomSampler:
    """Any start, drawn anew for each row."""

    def __init__(self, n_tokens: int, block_size: int, seed: int) -> None:
        self._starts, self._seed = n_tokens - block_size, seed

    def starts(self, rows: U64) -> npt.NDArray[np.int64]:
        """See Order."""
        return (mix_arrays(self._seed, _RANDOM, rows) % np.uint64(self._starts)).astype(np.int64)
