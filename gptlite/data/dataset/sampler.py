"""Samplers choose the windows of the text that each step sees, as a pure function of the seed and the step.

They use integer arithmetic alone, so they give the same windows on every machine, rank and version.

There are N tokens and windows of T = block_size inputs. A window that starts at s reads ids s .. s + T (the last only
as a target), so starts are in 0 .. N - T - 1. Rows are numbered through all steps: g = step * batch_size + row.

shuffle   W = max(1, (N - T) // T) windows per epoch; epoch e = g // W, index i = g % W:
              start = offset(e) + T * permutation(e, i),   offset(e) = mix(seed, "offset", e) mod (N - T * W)
          The windows of one epoch do not overlap, each occurs once, and the last one ends inside the text:
          offset + T * W <= N - 1. If N >= 2 T, the slack N - 1 - T * W is at least T - 1, so that over the epochs
          windows start everywhere.
random    start = mix(seed, "random", g) mod (N - T)

mix(a, b, c...) folds splitmix64 over its arguments. permutation(e, .) is a Feistel network on pairs (l, r) with
l < A = ceil(sqrt(W)), r < B = ceil(W / A), number l * B + r. It has eight rounds k, each of which is invertible:
    k even: l += mix(seed, "permute", e, k, r) mod A, taken mod A;   k odd: r += mix(seed, "permute", e, k, l) mod B
It permutes A * B >= W numbers. A result of W or more is permuted again until it is below W (cycle walking), which
gives a permutation of 0 .. W - 1.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from gptlite.seeds import U64, mix_arrays, splitmix64

# One stream of random numbers for each use of the seed.
_OFFSET, _RANDOM, _PERMUTE = (int.from_bytes(name, "little") for name in (b"offset", b"random", b"permute"))
_ROUNDS = 8


def windows_per_epoch(n_tokens: int, block_size: int) -> int:
    """W of the formulas: the windows that the shuffled order visits before it repeats one."""
    return max(1, (n_tokens - block_size) // block_size)


def permute(index: U64, size: int, seed: int, epoch: U64) -> U64:
    """Permute `index` (n,), each below `size`, with the permutation of its epoch (n,)."""
    a = math.isqrt(size - 1) + 1
    b = -(-size // a)
    keys = [mix_arrays(seed, _PERMUTE, epoch, k) for k in range(_ROUNDS)]
    result = _feistel(index, a, b, keys)
    while (outside := result >= size).any():
        result[outside] = _feistel(result[outside], a, b, [key[outside] for key in keys])
    return result


def _feistel(index: U64, a: int, b: int, keys: list[U64]) -> U64:
    left, right = index // np.uint64(b), index % np.uint64(b)
    for k, key in enumerate(keys):
        if k % 2 == 0:
            left = (left + splitmix64(key ^ right) % np.uint64(a)) % np.uint64(a)
        else:
            right = (right + splitmix64(key ^ left) % np.uint64(b)) % np.uint64(b)
    return left * np.uint64(b) + right


def shuffled_starts(rows: U64, n_tokens: int, block_size: int, seed: int) -> npt.NDArray[np.int64]:
    """Return the starts of the windows of rows (n,), which are numbered through all steps: (n,)."""
    n_windows = windows_per_epoch(n_tokens, block_size)
    epoch, index = np.divmod(rows, np.uint64(n_windows))
    offset = mix_arrays(seed, _OFFSET, epoch) % np.uint64(n_tokens - block_size * n_windows)
    window = permute(index, n_windows, seed, epoch)
    return (offset + window * np.uint64(block_size)).astype(np.int64)


def random_starts(rows: U64, n_tokens: int, block_size: int, seed: int) -> npt.NDArray[np.int64]:
    """Return starts anywhere in the text, as `shuffled_starts`."""
    return (mix_arrays(seed, _RANDOM, rows) % np.uint64(n_tokens - block_size)).astype(np.int64)
