"""An n-gram teacher: what a smoothed model of the training text expects at a place, beside what stands there.

A short text says little: what stands at a place is one of the tokens that might have stood there. An n-gram model says
how likely the others were, from all places with the same last tokens, and a network that also learns from it gets a
better score on other text than either (docs/decisions.md). The network alone is stored and sampled from.

Two models take turns, one that knows the last tokens and one that knows the word so far and the word before. Each is
interpolated Kneser-Ney with three discounts (Chen and Goodman 1999, "An empirical study of smoothing techniques for
language modeling", section 3). With c the count of the token w after a context h, and h' the next coarser one, such as
h without its first token,

    p(w | h) = (c(h w) - d(c)) / c(h) + (sum of d after h) / c(h) * p(w | h')

c counts places for the finest contexts; for the others, the different finer contexts with which h w occurs. Below the
coarsest context, which knows nothing, all ids are equally likely.

A place must not teach itself: a count that includes it expects just what stands there. So the text is divided into
FOLDS parts, and the teacher of a part has counted the others (cross-fitting).

Shapes: N tokens, V ids, n positions.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from gptlite.seeds import U64

# Tokens of the longest context. More help where passages return, as in code, but take up to ten times the memory.
ORDER, ORDER_OF_SHORT_TEXT = 5, 12
SHORT_TEXT = 300_000  # tokens
FOLDS = 10
SAMPLED, EM_STEPS = 100_000, 30  # positions from which the shares of both models are estimated
FIXED, LEAST = 0.75, 0.05  # discounts: where none can be estimated, and what is always taken and left

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class NgramTeacher:
    """Draws tokens for the positions of a text (N,) whose ids have these texts (V).

    For each character of a text it holds about 350 bytes, of a short text 1,500. order: tokens of the longest context;
    None: what suits the length of the text.
    """

    def __init__(self, ids: Ints, texts: Sequence[str], order: int | None = None) -> None:
        if order is None:
            order = ORDER_OF_SHORT_TEXT if len(ids) <= SHORT_TEXT else ORDER
        by_words = last_words(ids, texts)
        self._by_tokens = KneserNey(ids, len(texts), last_tokens(ids, len(texts), order))
        self._by_words = KneserNey(ids, len(texts), by_words)
        # How often the second model takes its turn depends on how long a context each of them knows.
        self._kind = self._by_tokens.longest * len(by_words) + self._by_words.longest
        at = np.arange(0, len(ids), max(1, len(ids) // SAMPLED))
        self._share = fit_share(self._kind[at], self._by_tokens.probability(at), self._by_words.probability(at))

    def draw(self, positions: Ints, numbers: U64) -> Ints:
        """Draw a token for each position, (n,), from what comes before it in the text, by 64 random bits each: (n,)."""
        part = (numbers >> np.uint64(11)) * 2.0**-53  # of the probability, in [0, 1)
        turn = (numbers & np.uint64(2**11 - 1)) * 2.0**-11  # by the other 11 bits
        by_words = turn < self._share[self._kind[positions]]
        drawn = np.empty(len(positions), np.int64)
        for model, own in ((self._by_tokens, ~by_words), (self._by_words, by_words)):
            drawn[own] = model.draw(positions[own], part[own])
        return drawn


def fit_share(kind: Ints, first: Floats, second: Floats) -> Floats:
    """Return for each kind of position the share of the second model that makes a text most likely: (n,) each -> (k,).

    By expectation maximisation. kind: a number below k. first, second: the probabilities by each model.
    """
    total = np.bincount(kind)
    share = np.full(len(total), 0.5)
    for _ in range(EM_STEPS):
        of_second = share[kind] * second
        responsible = of_second / (of_second + (1 - share[kind]) * first)
        share = np.where(total > 0, np.bincount(kind, responsible) / np.maximum(total, 1), 0.5)
    return share


def last_tokens(ids: Ints, vocab_size: int, order: int) -> list[Ints]:
    """Number the contexts of 0 .. order tokens before each position: (N,) each."""
    contexts = [np.zeros(len(ids), np.int64)]
    for _ in range(order):
        longer = contexts[-1] * vocab_size + ids  # as the context of the next position
        contexts.append(np.unique(np.append(-1, longer[:-1]), return_inverse=True)[1])
    return contexts


def last_words(ids: Ints, texts: Sequence[str]) -> list[Ints]:
    """Number what is known of the place before each position, finer and finer: (N,) each.

    Nothing; the last token; with it the letters of the word so far, small; with these the word before.
    """
    letters = [ord(text.lower()[0]) if len(text) == 1 and text.isalpha() else 0 for text in texts]
    numbers: dict[tuple[int, int], int] = {}  # of the words that begin with a word and go on with a letter
    word, before = 0, 0
    words, words_before = np.zeros_like(ids), np.zeros_like(ids)
    for position, letter in enumerate(map(letters.__getitem__, ids.tolist())):
        words[position], words_before[position] = word, before
        if letter:
            word = numbers.setdefault((word, letter), len(numbers) + 1)
        elif word:
            word, before = 0, word
    contexts = [np.zeros_like(ids), np.append(0, ids[:-1] + 1)]
    for more in (words, words_before):
        contexts.append(contexts[-1] * (len(numbers) + 1) + more)
        contexts[-1] = np.unique(contexts[-1], return_inverse=True)[1]
    return contexts


class KneserNey:
    """Predicts the token at a position of a text (N,) of V ids from contexts that become finer and finer, (N,) each.

    longest: the finest context of each position that was counted in other folds: (N,).
    """

    def __init__(self, ids: Ints, vocab_size: int, contexts: Sequence[Ints]) -> None:
        self._vocab_size, self._contexts = vocab_size, contexts
        self._fold = np.arange(len(ids)) * FOLDS // len(ids)
        # An n-gram is a context of level n and the token after it; they are numbered in the order of both.
        self._grams: list[Ints] = []  # at each position: (N,)
        self._first: list[Ints] = []  # for each context, the first n-gram that continues it; and the end
        self._token: list[Ints] = []  # the token of each n-gram
        coarser: list[Ints] = []  # each n-gram with the next coarser context; of the coarsest there is none
        for context in contexts:
            pairs, place, grams = np.unique(context * vocab_size + ids, return_index=True, return_inverse=True)
            known, token = np.divmod(pairs, vocab_size)
            self._first.append(np.searchsorted(known, np.arange(context.max() + 2)))
            self._token.append(token)
            coarser.append(self._grams[-1][place] if self._grams else place)
            self._grams.append(grams)
        # By n, one fold after another: the mass of the n-grams added up, and what is left for the coarser context.
        models = [self._count(coarser, fold) for fold in range(FOLDS)]
        levels = range(len(contexts))
        self._mass = [np.concatenate([model[n][0] for model in models]) for n in levels]
        self._left = [np.concatenate([model[n][1] for model in models]) for n in levels]
        self.longest = np.zeros(len(ids), np.int64)
        for n in range(1, len(contexts)):
            positions = np.flatnonzero(self.longest == n - 1)
            _, start, stop, left = self._after(n, positions)
            self.longest[positions[stop - start + left > 0]] = n

    def _count(self, coarser: list[Ints], fold: int) -> list[tuple[Floats, Floats]]:
        """Smooth the counts of all folds but one. The masses of a fold are above those of the folds before."""
        finest = len(coarser) - 1
        counts = np.bincount(self._grams[finest][self._fold != fold], minlength=len(self._token[finest]))
        model = []
        for n in range(finest, -1, -1):
            if n < finest:
                counts = np.bincount(coarser[n + 1][counts > 0], minlength=len(self._token[n]))
            taken = discounts(counts)
            mass = np.cumsum(np.append(fold * len(self._fold), counts - taken))
            model.append((mass, np.diff(np.cumsum(np.append(0.0, taken))[self._first[n]])))
        return model[::-1]

    def _after(self, n: int, positions: Ints) -> tuple[Ints, Floats, Floats, Floats]:
        """Return what may follow the context n of each position, as its fold has counted it, each (n,).

        Where the masses of the fold begin; the mass before the first and after the last n-gram with this context; and
        what is left for the coarser context. Nothing follows a context that only its own fold has.
        """
        context, fold, first = self._contexts[n][positions], self._fold[positions], self._first[n]
        at = fold * (len(self._token[n]) + 1)
        left = self._left[n][fold * (len(first) - 1) + context]
        return at, self._mass[n][at + first[context]], self._mass[n][at + first[context + 1]], left

    def probability(self, positions: Ints) -> Floats:
        """Return the probability of the token that stands at each position: (n,) -> (n,)."""
        p = np.full(len(positions), 1 / self._vocab_size)
        for n in range(len(self._contexts)):
            at, start, stop, left = self._after(n, positions)
            gram, total = at + self._grams[n][positions], stop - start + left
            own = self._mass[n][gram + 1] - self._mass[n][gram]
            p = np.where(total > 0.0, (own + left * p) / np.maximum(total, LEAST), p)
        return p

    def draw(self, positions: Ints, part: Floats) -> Ints:
        """Draw a token for each position by a number in [0, 1): (n,), (n,) -> (n,)."""
        part, drawn = part.copy(), np.full(len(positions), -1, np.int64)  # of the probability that is not yet given
        for n in range(len(self._contexts) - 1, -1, -1):
            own = np.flatnonzero((drawn < 0) & (self.longest[positions] >= n))
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
