"""Dropout whose masks are a pure function of a key: the same on every device and for any number of threads.

torch's generator walks through its numbers one after the other; a counter-based one (Salmon et al. 2011, "Parallel
random numbers: as easy as 1, 2, 3") hashes the index of each element, so all of them can be computed at once. The
hash is that of Murmur3's finaliser, with the key added at two of its stages.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gptlite.seeds import mix

CHUNK = 1 << 18  # hashes at a time on a CPU: few enough for its cache, many enough for its threads
LEVELS = 1 << 16  # a mask compares 16 bits, so probabilities are multiples of 1 / 65,536


def hashes(start: int, n: int, key: tuple[int, int], device: torch.device) -> Tensor:
    """Hashes of the numbers start .. start + n - 1: (n,) int32, every bit as good as random."""
    x = torch.arange(start, start + n, dtype=torch.int32, device=device)
    x.add_(key[0])
    for shift, factor, constant in ((16, -2048144789, key[1]), (13, -1028477387, 0)):
        x.bitwise_xor_(_shifted(x, shift)).mul_(factor).add_(constant)
    return x.bitwise_xor_(_shifted(x, 16))


def _shifted(x: Tensor, bits: int) -> Tensor:
    """x >> bits with zeros moving in; torch repeats the sign."""
    return (x >> bits).bitwise_and_((1 << (32 - bits)) - 1)


@dataclass
class DropoutMasks:
    """The masks of one forward pass: the i-th that is drawn is a pure function of (seed, i, its shape, p)."""

    seed: int
    drawn: int = 0

    def dropped(self, shape: Sequence[int], p: float, device: torch.device) -> Tensor:
        """The next mask, True for each element that is dropped, which happens with probability p: `shape` bool."""
        words = mix(self.seed, self.drawn).to_bytes(8, "little")
        key = (int.from_bytes(words[:4], "little", signed=True), int.from_bytes(words[4:], "little", signed=True))
        self.drawn += 1
        n = math.prod(shape)
        mask = torch.empty(n, dtype=torch.bool, device=device)
        below = round(p * LEVELS) - LEVELS // 2  # each hash is two signed 16-bit numbers
        chunk = CHUNK if device.type == "cpu" else max(1, (n + 1) // 2)
        for start in range(0, n, 2 * chunk):
            size = min(2 * chunk, n - start)
            numbers = hashes(start // 2, (size + 1) // 2, key, device).view(torch.int16)[:size]
            torch.lt(numbers, below, out=mask[start : start + size])
        return mask.view(tuple(shape))


def dropout(x: Tensor, p: float, dropout_masks: DropoutMasks | None) -> Tensor:
    """Zero each element with probability `p` and scale the rest by 1 / (1 - p); the identity without `masks`.

    p counts to the nearest 1 / 65,536.
    """
    if dropout_masks is None or p == 0.0:
        return x
    return x.masked_fill(dropout_masks.dropped(x.shape, p, x.device), 0.0).mul_(1.0 / (1.0 - p))
