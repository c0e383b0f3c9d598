"""Dropout with counter-based masks: pure functions of a seed, equal on every device and for any number of threads.

torch's generator is sequential; a counter-based one (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3")
hashes the index of each element, so all elements are drawn in parallel. The hash is Murmur3's finaliser, with the key
added at two of its stages.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from gptlite.seeds import mix_arrays

CHUNK = 1 << 18  # hashes at a time on a CPU: small enough for its cache, large enough for its threads
LEVELS = 1 << 16  # 16 random bits per element: probabilities are multiples of 1 / 65,536


def hashes(start: int, n: int, key: Tensor) -> Tensor:
    """Hash the numbers start .. start + n - 1 under a key (2,) int32, uniform over all 32 bits: (n,) int32."""
    x = torch.arange(start, start + n, dtype=torch.int32, device=key.device)
    x.add_(key[0])
    x.bitwise_xor_(_shifted(x, 16)).mul_(-2048144789).add_(key[1])
    x.bitwise_xor_(_shifted(x, 13)).mul_(-1028477387)
    return x.bitwise_xor_(_shifted(x, 16))


def _shifted(x: Tensor, bits: int) -> Tensor:
    """Return x >> bits of an unsigned number; torch's >> repeats the sign bit."""
    return (x >> bits).bitwise_and_((1 << (32 - bits)) - 1)


class DropoutMasks:
    """The dropout masks of one forward pass: mask i is a pure function of (seed, i, its shape, p).

    The keys of the hash are a tensor, so that a compiled model takes them as an input and is compiled once.
    """

    def __init__(self, seed: int, *, n_masks: int = 100, device: torch.device | None = None) -> None:
        keys = mix_arrays(seed, np.arange(n_masks, dtype=np.uint64)).astype("<u8").view("<i4").reshape(n_masks, 2)
        self._keys = torch.from_numpy(keys).to(device, non_blocking=True)
        self.drawn = 0  # masks so far

    def dropped(self, shape: Sequence[int], p: float) -> Tensor:
        """Draw the next mask: True with probability p, where an element is dropped: `shape` bool."""
        key = self._keys[self.drawn]
        self.drawn += 1
        n = math.prod(shape)
        threshold = min(round(p * LEVELS), LEVELS - 1) - LEVELS // 2  # each hash is two signed 16-bit numbers
        if key.device.type != "cpu" or torch.compiler.is_compiling():
            return (hashes(0, (n + 1) // 2, key).view(torch.int16)[:n] < threshold).view(tuple(shape))
        mask = torch.empty(n, dtype=torch.bool)
        for start in range(0, n, 2 * CHUNK):
            size = min(2 * CHUNK, n - start)
            numbers = hashes(start // 2, (size + 1) // 2, key).view(torch.int16)[:size]
            torch.lt(numbers, threshold, out=mask[start : start + size])
        return mask.view(tuple(shape))


def dropout(x: Tensor, p: float, dropout_masks: DropoutMasks | None) -> Tensor:
    """Zero each element with probability p and scale the others by 1 / (1 - p); without masks, the identity.

    The probability is p rounded to a multiple of 1 / 65,536, at most the last one below 1.
    """
    if dropout_masks is None or p == 0.0:
        return x
    return x.masked_fill(dropout_masks.dropped(x.shape, p), 0.0).mul_(min(1.0 / (1.0 - p), LEVELS))
