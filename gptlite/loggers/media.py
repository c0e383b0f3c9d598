"""What is shown of a step beside its numbers: images, histograms, the vectors of the tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from gptlite.loggers.heatmap import Pixels

N_BINS = 30


@dataclass(frozen=True)
class Histogram:
    """How many numbers lie between two edges: counts (N_BINS,), edges (N_BINS + 1,)."""

    counts: npt.NDArray[np.int64]
    edges: npt.NDArray[np.float64]

    @classmethod
    def of(cls, numbers: npt.NDArray[np.floating[Any]]) -> Histogram:
        """Equal bins from the least to the largest of the numbers, of any shape; those that are not finite are left
        out."""
        finite = numbers[np.isfinite(numbers)].astype(np.float64)  # fp32 has no 30 edges between 1 and the next number
        return cls(*np.histogram(finite, bins=N_BINS))


@dataclass(frozen=True)
class Embeddings:
    """A vector for each of the first so many tokens of the vocabulary: labels (n), vectors (n, C) in fp32."""

    labels: Sequence[str]
    vectors: npt.NDArray[np.float32]


Picture: TypeAlias = Pixels | Histogram | Embeddings
