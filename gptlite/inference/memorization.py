"""How much of what a model writes it has by heart: what of its samples stands verbatim in its training text.

Real text repeats itself too, so validation text, which the model has not seen, is searched for in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gptlite.data.prepared import Prepared
from gptlite.data.tokens import TokenArray, Tokens, detokenize
from gptlite.data.verbatim import VerbatimSearch, covered, stretches
from gptlite.inference.language_model import LanguageModel
from gptlite.inference.sampling import SamplingParams
from gptlite.tokenizers.base import Tokenizer

N_SAMPLES = 16
SAMPLE_TOKENS = 200
TEMPERATURE = 1.0  # as the model has learned, neither bolder nor safer
SEED = 0

_JOINT = b"\xff"  # between documents: no character, so that nothing is found across


@dataclass(frozen=True)
class Copied:
    """Of some passages: their characters, those in stretches that stand in the training text, and these stretches."""

    characters: int
    verbatim: int
    stretches: Sequence[str]  # each once, the longest first

    @property
    def share(self) -> float:
        """Verbatim of all characters; 0 of none."""
        return self.verbatim / self.characters if self.characters else 0.0


@dataclass(frozen=True)
class Memorised:
    """What was found of the model's samples, and of as much validation text."""

    samples: Copied
    validation: Copied


def memorised(model: LanguageModel, prepared: Prepared) -> Memorised:
    """Let the model write, and look for it in the training split of its prepared text."""
    how = SamplingParams(max_new_tokens=SAMPLE_TOKENS, temperature=TEMPERATURE)
    samples = [sample.whole().text for sample in model.samples("", how, seed=SEED, n=N_SAMPLES)]
    tokenizer = prepared.tokenizer()
    excerpts = list(excerpts_of(prepared.split("val"), tokenizer, [len(sample) for sample in samples]))
    search = VerbatimSearch([*samples, *excerpts])
    for piece in detokenize(prepared.split("train"), tokenizer, separator=_JOINT):
        search.feed(piece)
    lengths = search.lengths()
    return Memorised(_copied(samples, lengths[: len(samples)]), _copied(excerpts, lengths[len(samples) :]))


def excerpts_of(text: Tokens, tokenizer: Tokenizer, sizes: Sequence[int]) -> Iterator[str]:
    """So many characters from each of len(sizes) places, evenly over a text: fewer where the next place comes first,
    and in several passages where documents meet."""
    for place, size in enumerate(sizes):
        first, last = (text.n_tokens * i // len(sizes) for i in (place, place + 1))
        ids = TokenArray(text.read(first, min(last - first, 4 * size)), text.where)  # a character takes four at most
        for part in b"".join(detokenize(ids, tokenizer, separator=_JOINT)).split(_JOINT):
            passage = part.decode("utf-8", "ignore")[:size]  # a character at an end may have been cut
            size -= len(passage)
            yield passage


def _copied(passages: Sequence[str], lengths: Sequence[npt.NDArray[np.int64]]) -> Copied:
    found = [stretches(*pair) for pair in zip(passages, lengths, strict=True)]
    texts = {passage[start:stop] for passage, spans in zip(passages, found, strict=True) for start, stop in spans}
    longest_first = sorted(texts, key=lambda text: (-len(text), text))
    return Copied(sum(map(len, passages)), sum(map(covered, found)), longest_first)
