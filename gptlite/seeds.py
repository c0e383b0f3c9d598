"""Counter-based random numbers: pure functions of a seed and a few integers, the same on every machine."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

U64 = npt.NDArray[np.uint64]


def splitmix64(x: U64) -> U64:
    """Apply Steele, Lea & Flood's mixing function: every bit of a word (n,) changes about half of the result's bits."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def mix(*words: int) -> int:
    """Return one 64-bit hash of several words, each in 0 .. 2**64 - 1: a seed for every purpose, step or rank."""
    return int(mix_arrays(*words)[0])


def mix_arrays(*words: int | U64) -> U64:
    """Return the same, element by element, for words of which some are arrays (n,): (n,), or (1,) without any."""
    result = np.zeros(1, np.uint64)
    for word in words:
        result = splitmix64(result ^ np.asarray(word, np.uint64))
    return result
