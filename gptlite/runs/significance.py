"""Whether the mean score of one group of runs is better than that of another, and how many runs would tell."""

from __future__ import annotations

import bisect
import functools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

LEVEL = 0.95
MARGIN = 0.5  # % of the score: the largest difference of no relevance, unless another is asked for
PAIRED_FROM = 4  # common seeds
MOST_SEEDS = 100  # that are looked ahead for
STEPS = 10_000  # of the integral of Student's t

SAME_TEXT = 0.001  # of its bytes may be missing: a model may not score its first token

Blocks = Sequence[tuple[float, int]]  # nats and bytes of each part of the validation text
# Of A against B. "same": no relevant difference.
Answer = Literal["better", "worse", "same", "unknown"]


@functools.cache
def t_quantile(level: float, df: float) -> float:
    """Return the t that |T| does not exceed with probability `level`, of Student's t with `df` >= 1 degrees of freedom.

    With T = sqrt(df) tan(u), the density of u is proportional to cos(u) ** (df - 1) (Johnson, Kotz and Balakrishnan,
    Continuous Univariate Distributions, volume 2, chapter 28).

    >>> round(t_quantile(0.95, 4), 3)
    2.776
    """
    width = math.pi / 2 / STEPS
    below = list(accumulate(math.cos((step + 0.5) * width) ** (df - 1) for step in range(STEPS)))
    wanted = level * below[-1]
    step = bisect.bisect_left(below, wanted)
    before = below[step - 1] if step else 0.0
    return math.sqrt(df) * math.tan((step + (wanted - before) / (below[step] - before)) * width)


@dataclass(frozen=True)
class Difference:
    """The mean of A's scores minus that of B's, its standard error, and the degrees of freedom of its t."""

    value: float
    error: float
    df: float

    @classmethod
    def welch(cls, a: Sequence[float], b: Sequence[float], *, more: int = 0) -> Difference:
        """Compare by Welch's t and the degrees of freedom of Satterthwaite, from at least two values each.

        more: as with so many further values of each, of which mean and variance stay (here and in `paired`).
        """
        n_a, n_b = len(a) + more, len(b) + more
        of_a, of_b = statistics.variance(a) / n_a, statistics.variance(b) / n_b
        share = of_a / (of_a + of_b) if of_a + of_b else 0.0  # without variance, any df gives an interval of no width
        df = 1 / (share**2 / (n_a - 1) + (1 - share) ** 2 / (n_b - 1))
        return cls(statistics.mean(a) - statistics.mean(b), math.sqrt(of_a + of_b), df)

    @classmethod
    def paired(cls, pairs: Sequence[tuple[float, float]], *, more: int = 0) -> Difference:
        """Compare the two values of each pair by Student's t."""
        each, n = [a - b for a, b in pairs], len(pairs) + more
        return cls(statistics.mean(each), math.sqrt(statistics.variance(each) / n), n - 1)

    @classmethod
    def over_blocks(cls, a: Sequence[Blocks], b: Sequence[Blocks]) -> Difference | None:
        """Compare bits per byte over equal blocks of one text, which each run has scored in blocks of its own.

        The text is then the sample, and the runs of each side are averaged. None where there is nothing to compare, or
        the text is not the same.
        """
        import numpy as np  # which takes longer than `gptlite --help` should

        if not all([*a, *b]):
            return None
        ends = [sum(n_bytes for _, n_bytes in blocks) for blocks in (*a, *b)]
        n = min(len(blocks) for blocks in (*a, *b))
        if n < 2 or max(ends) > (1 + SAME_TEXT) * min(ends):
            return None
        grid = np.linspace(0, 1, n + 1)
        one, other = (np.mean([_nats_until(blocks, grid) for blocks in side], axis=0) for side in (a, b))
        each = np.diff(one - other) * n / (math.log(2) * min(ends))
        return cls(float(each.mean()), float(each.std(ddof=1)) / math.sqrt(n), n - 1)

    def interval(self, level: float = LEVEL) -> tuple[float, float]:
        """Return the confidence interval."""
        half = t_quantile(level, math.floor(100 * self.df + 1e-6) / 100) * self.error  # few values, which are kept
        return self.value - half, self.value + half

    def answer(self, margin: float, level: float = LEVEL) -> Answer:
        """Answer whether A, whose lower mean is better, is better. margin: the largest difference of no relevance."""
        low, high = self.interval(level)
        if -margin <= low and high <= margin:
            return "same"
        return "better" if high < 0 else "worse" if low > 0 else "unknown"


def _nats_until(blocks: Blocks, grid: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the nats of the text from its beginning to each fraction of its bytes, between blocks by interpolation."""
    import numpy as np

    nats, n_bytes = np.cumsum([(0.0, 0), *blocks], axis=0).T
    return np.asarray(np.interp(grid, n_bytes / n_bytes[-1], nats))


@dataclass(frozen=True)
class Comparison:
    """Two groups of runs, by their scores, each of another seed. margin: the largest difference of no relevance."""

    a: Mapping[int, float]
    b: Mapping[int, float]
    margin: float
    level: float = LEVEL

    @property
    def pairs(self) -> list[tuple[float, float]]:
        """The scores of the common seeds, which begin with the same weights and read the same batches."""
        return [(self.a[seed], self.b[seed]) for seed in self.a.keys() & self.b.keys()]

    @property
    def is_paired(self) -> bool:
        """Whether the answer is by pairs, which the number of common seeds alone decides."""
        return len(self.pairs) >= PAIRED_FROM

    @property
    def tells(self) -> bool:
        """Whether there are two seeds of each."""
        return min(len(self.a), len(self.b)) > 1

    def difference(self, more: int = 0) -> Difference:
        """Return the difference that decides. more: as in `Difference.welch`."""
        if self.is_paired:
            return Difference.paired(self.pairs, more=more)
        return Difference.welch(list(self.a.values()), list(self.b.values()), more=more)

    @property
    def answer(self) -> Answer:
        """The answer; "unknown" with one seed of either."""
        return self.difference().answer(self.margin, self.level) if self.tells else "unknown"

    def further_seeds(self) -> int | None:
        """Return how many more seeds of each would tell, if means and spreads stay; None where MOST_SEEDS would not."""
        enough = (
            n for n in range(1, MOST_SEEDS + 1) if self.difference(n).answer(self.margin, self.level) != "unknown"
        )
        return next(enough, None)
