"""Memorisation: how much of a model's samples occurs verbatim in its training text.

Ordinary text repeats itself too, so validation text, which the model has not seen, is measured in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gptlite.config.sampling import SampleSection
from gptlite.data.dataset.prepared import Prepared
from gptlite.data.dataset.tokens import TokenArray, Tokens, detokenize
from gptlite.data.preparing.verbatim import VerbatimSearch
from gptlite.inference.language_model import LanguageModel
from gptlite.tokenizers.base import Tokenizer

N_SAMPLES = 16
SAMPLE_TOKENS = 200
TEMPERATURE = 1.0  # the distribution that the model has learned
SEED = 0

_SEPARATOR = b"\xff"  # between documents: not a character, so that no match crosses it


@dataclass(frozen=True)
class Copied:
    """The part of some passages that occurs in the training text."""

    characters: int  # in all
    verbatim: int  # in stretches of at least SHORTEST that occur in the training text
    longest: str  # run of such characters; it may be of several stretches that overlap

    @property
    def share(self) -> float:
        """The verbatim fraction of the characters; 0 if there are none."""
        return self.verbatim / self.characters if self.characters else 0.0


def measure_memorisation(model: LanguageModel, prepared: Prepared) -> tuple[Copied, Copied]:
    """Search the training split for samples of the model, and for as much validation text."""
    params = SampleSection(max_new_tokens=SAMPLE_TOKENS, temperature=TEMPERATURE, seed=SEED, n=N_SAMPLES)
    samples = [sample.whole().text for sample in model.samples("", params)]
    excerpts = list(take_excerpts(prepared.split("val"), prepared.tokenizer(), [len(sample) for sample in samples]))
    spans = _search_training_text([*samples, *excerpts], prepared)
    return _count(samples, spans[: len(samples)]), _count(excerpts, spans[len(samples) :])


def find_copied(passages: Sequence[str], prepared: Prepared) -> Copied:
    """Search the training split for passages."""
    return _count(passages, _search_training_text(passages, prepared))


def _search_training_text(passages: Sequence[str], prepared: Prepared) -> list[list[tuple[int, int]]]:
    search = VerbatimSearch(passages)
    for piece in detokenize(prepared.split("train"), prepared.tokenizer(), separator=_SEPARATOR):
        search.feed(piece)
    return search.spans()


def take_excerpts(text: Tokens, tokenizer: Tokenizer, sizes: Sequence[int]) -> Iterator[str]:
    """Yield passages of `sizes` characters from evenly spaced places of a text.

    An excerpt is shorter where the next place comes first, and is several passages where it crosses documents.
    """
    for place, size in enumerate(sizes):
        first, last = (text.n_tokens * i // len(sizes) for i in (place, place + 1))
        ids = TokenArray(text.read(first, min(last - first, 4 * size)), text.where)  # a character has at most four
        for part in b"".join(detokenize(ids, tokenizer, separator=_SEPARATOR)).split(_SEPARATOR):
            passage = part.decode("utf-8", "ignore")[:size]  # without characters that are cut at an end
            size -= len(passage)
            yield passage


def _count(passages: Sequence[str], spans: Sequence[list[tuple[int, int]]]) -> Copied:
    texts = [passage[start:stop] for passage, of in zip(passages, spans, strict=True) for start, stop in of]
    return Copied(sum(map(len, passages)), sum(map(len, texts)), max(texts, key=len, default=""))
