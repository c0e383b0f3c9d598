"""An n-gram teacher: what a smoothed model of the training text expects at a place, beside what stands there.

A short text says little: what stands at a place is one of the tokens that might have stood there. An n-gram model says
how likely the others were, from all places with the same last tokens, and a network that also learns from it gets a
better score on other text than either (docs/decisions.md). The network alone is stored and sampled from.

The teacher is interpolated Kneser-Ney with three discounts (Chen and Goodman 1999, "An empirical study of smoothing
techniques for language modeling", section 3). With c the count of the token w after a context h of n tokens, and h' the
context without its first token,

    p(w | h) = (c(h w) - d(c)) / c(h) + (sum of d after h) / c(h) * p(w | h')

c counts places for the longest contexts; for the others, the different tokens that stand before h w. Below the empty
context all ids are equally likely.

A place must not teach itself: a count that includes it expects just what stands there. So the text is divided into
FOLDS parts, and the teacher of a part has counted the others (cross-fitting).

Shapes: N tokens, V ids, n positions.
"""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt

from gptlite.seeds import U64

# Tokens of the longest context. More help where passages return, as in code, but take up to ten times the memory.
ORDER, ORDER_OF_SHORT_TEXT = 5, 12
SHORT_TEXT = 300_000  # tokens
FOLDS = 10
FIXED, LEAST = 0.75, 0.05  # discounts: where none can be estimated, and what is always taken and left

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class NgramTeacher:
    """Draws tokens for the positions of a text (N,) of V ids. It holds about 120 bytes for each token, of a short
    text up to 1,200.

    order: tokens of the longest context; None: what suits the length of the text.
    """

    def __init__(self, ids: Ints, vocab_size: int, order: int | None = None) -> None:
        if order is None:
            order = ORDER_OF_SHORT_TEXT if len(ids) <= SHORT_TEXT else ORDER
        self._vocab_size, self._order = vocab_size, order
        self._fold = np.arange(len(ids)) * FOLDS // len(ids)
        # The n-grams of n = 0 .. order + 1 tokens are numbered in the order of their texts. An n-gram is the context of
        # the token after it, and with it an n-gram of one token more.
        self._contexts = [np.zeros(len(ids) + 1, np.int64)]  # of n tokens before each position: (N + 1,)
        self._first: list[Ints] = []  # for each context of n tokens, the first n-gram that continues it; and the end
        self._token: list[Ints] = []  # the last token of each of these
        shorter: list[Ints] = []  # each of these without its first token
        for n in range(order + 1):
            known = self._contexts[n][n:-1]  # of the positions from n on
            pairs, grams = np.unique(known * vocab_size + ids[n:], return_inverse=True)
            context, token = np.divmod(pairs, vocab_size)
            self._first.append(np.searchsorted(context, np.arange(known.max(initial=-1) + 2)))
            self._token.append(token)
            if n > 0:
                without_first = np.zeros(len(pairs), np.int64)
                without_first[grams] = self._contexts[n][n + 1 :]
                shorter.append(without_first)
            self._contexts.append(np.concatenate([np.full(n + 1, -1), grams]))
        # By n, one fold after another: the mass of the n-grams added up, and what is left for the shorter context.
        models = [self._count(shorter, fold) for fold in range(FOLDS)]
        self._mass = [np.concatenate([model[n][0] for model in models]) for n in range(order + 1)]
        self._left = [np.concatenate([model[n][1] for model in models]) for n in range(order + 1)]
        # The longest context of each position that was counted in other folds: (N,).
        self._longest = np.zeros(len(ids), np.int8)
        for n in range(1, order + 1):
            positions = n + np.flatnonzero(self._longest[n:] == n - 1)
            _, start, stop, rest = self._after(n, positions)
            self._longest[positions[stop - start + rest > 0]] = n

    def _count(self, shorter: list[Ints], fold: int) -> list[tuple[Floats, Floats]]:
        """Smooth the counts of all folds but one. The masses of a fold are above those of the folds before."""
        order = self._order
        grams = self._contexts[order + 1][order + 1 :]
        counts = np.bincount(grams[self._fold[order:] != fold], minlength=len(self._token[order]))
        model = []
        for n in range(order, -1, -1):
            if n < order:
                counts = np.bincount(shorter[n][counts > 0], minlength=len(self._token[n]))
            taken = discounts(counts)
            mass = np.cumsum(np.append(fold * len(self._fold), counts - taken))
            model.append((mass, np.diff(np.cumsum(np.append(0.0, taken))[self._first[n]])))
        return model[::-1]

    def _after(self, n: int, positions: Ints) -> tuple[Ints, Floats, Floats, Floats]:
        """Return what may follow the n tokens before each position, as its fold has counted it, each (n,).

        Where the masses of the fold begin; the mass before the first and after the last n-gram with this context; and
        what is left for the shorter context. Nothing follows a context that only its own fold has.
        """
        context, fold, first = self._contexts[n][positions], self._fold[positions], self._first[n]
        at = fold * (len(self._token[n]) + 1)
        left = self._left[n][fold * (len(first) - 1) + context]
        return at, self._mass[n][at + first[context]], self._mass[n][at + first[context + 1]], left

    def draw(self, positions: Ints, numbers: U64) -> Ints:
        """Draw a token for each position, (n,), from what comes before it in the text, by 64 random bits each: (n,)."""
        part = (numbers >> np.uint64(11)) * 2.0**-53  # of the probability that is not yet given to tokens, in [0, 1)
        drawn, longest = np.full(len(positions), -1, np.int64), self._longest[positions]
        for n in range(self._order, -1, -1):
            own = np.flatnonzero((drawn < 0) & (longest >= n))
            at, start, stop, left = self._after(n, positions[own])
            wanted = start + part[own] * (stop - start + left)
            hit = wanted < stop
            grams = np.searchsorted(self._mass[n], wanted[hit], side="right") - 1 - at[hit]
            drawn[own[hit]] = self._token[n][grams]
            missed = ~hit & (left > 0.0)  # nothing is left where no other fold has any token
            part[own[missed]] = np.minimum((wanted - stop)[missed] / left[missed], 1.0 - 2.0**-53)
        rest = drawn < 0
        drawn[rest] = (part[rest] * self._vocab_size).astype(np.int64)
        return drawn


def discounts(counts: Ints) -> Floats:
    """Return how much is taken from each count: d(1), d(2), and d(3) for three or more.

    They follow from how many n-grams were counted once to four times (Chen and Goodman 1999, equation 17); without some
    of these, a fixed amount is taken.
    """
    seen = np.bincount(np.minimum(counts, 5), minlength=6)[1:5].tolist()
    amounts = [FIXED] * 3
    if all(seen):
        y = seen[0] / (seen[0] + 2 * seen[1])
        estimates = (k - (k + 1) * y * more / fewer for k, (fewer, more) in enumerate(itertools.pairwise(seen), 1))
        amounts = [min(k - LEAST, max(LEAST, amount)) for k, amount in enumerate(estimates, 1)]
    return np.array([0.0, *amounts])[np.minimum(counts, 3)]
