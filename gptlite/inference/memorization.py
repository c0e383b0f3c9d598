"""Memorisation: how much of a model's samples occurs verbatim in its training text, which may exceed memory.

Ordinary text repeats itself too, so validation text, which the model has not seen, is measured in the same way.
Every window of SHORTEST characters of the passages is searched for by its hash of 64 bits. A character is copied if a
window around it occurs in the text.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gptlite.config.training import SampleSection
from gptlite.data.dataset.prepared import Prepared
from gptlite.data.dataset.tokens import TokenArray, Tokens, detokenize
from gptlite.inference.language_model import LanguageModel
from gptlite.tokenizers.base import Tokenizer
from gptlite.tokenizers.char import code_points

# Keys of the section sample. At temperature 1 the samples are of the distribution that the model has learned.
SAMPLING: dict[str, Any] = {"n": 16, "max_new_tokens": 200, "temperature": 1.0, "seed": 0}
SHORTEST = 20  # characters: shorter matches are not searched for

_SEPARATOR = b"\xff"  # between documents: not a character, so that no match crosses it
_TABLE_SHIFT = np.uint64(64 - 20)
_MULTIPLIERS = [np.uint64(0x9E3779B97F4A7C15 + 2 * i) for i in range(SHORTEST)]


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


def measure_memorisation(model: LanguageModel, prepared: Prepared) -> list[Copied]:
    """Search the training split for samples of the model, and for as much validation text."""
    samples = [sample.whole().text for sample in model.samples("", SampleSection(**SAMPLING))]
    excerpts = list(take_excerpts(prepared.split("val"), prepared.tokenizer(), [len(sample) for sample in samples]))
    return find_copied(prepared, samples, excerpts)


def find_copied(prepared: Prepared, *groups: Sequence[str]) -> list[Copied]:
    """Search the training split once for the passages of all groups."""
    text = detokenize(prepared.split("train"), prepared.tokenizer(), separator=_SEPARATOR)
    spans = iter(find_verbatim([passage for group in groups for passage in group], text))
    found = []
    for group in groups:
        copies = [passage[start:stop] for passage in group for start, stop in next(spans)]
        found.append(Copied(sum(map(len, group)), sum(map(len, copies)), max(copies, key=len, default="")))
    return found


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


def find_verbatim(passages: Sequence[str], text: Iterable[bytes]) -> list[list[tuple[int, int]]]:
    """Return for each passage its copied parts (start, stop), in characters. Windows that meet are one part.

    text: in pieces, with _SEPARATOR between documents.
    """
    windows = [_hash_windows(code_points(passage)) for passage in passages]
    known = np.unique(np.concatenate([np.zeros(0, np.uint64), *windows]))
    is_found = np.zeros(len(known), bool)
    table = np.zeros(1 << 20, bool)  # by the upper bits of a hash, which leaves few windows of the text
    table[known >> _TABLE_SHIFT] = True
    decoder, tail = codecs.getincrementaldecoder("utf-8")("surrogateescape"), code_points("")
    for piece in text:
        points = np.concatenate([tail, code_points(decoder.decode(piece))])
        tail = points[max(0, len(points) - SHORTEST + 1) :]
        hashes = _hash_windows(points)
        is_found |= np.isin(known, hashes[table[hashes >> _TABLE_SHIFT]])
    found = []
    for of_passage in windows:
        starts = np.flatnonzero(is_found[np.searchsorted(known, of_passage)])
        copied = np.unique(starts[:, None] + np.arange(SHORTEST))
        runs = np.split(copied, np.flatnonzero(np.diff(copied) > 1) + 1)
        found.append([(int(run[0]), int(run[-1]) + 1) for run in runs if len(run)])
    return found


def _hash_windows(points: npt.NDArray[np.unsignedinteger[Any]]) -> npt.NDArray[np.uint64]:
    """Return a hash of each window: (n - SHORTEST + 1,)."""
    hashes = np.zeros(max(0, len(points) - SHORTEST + 1), np.uint64)
    for place, multiplier in enumerate(_MULTIPLIERS):
        hashes = (hashes ^ points[place : place + len(hashes)]) * multiplier
    return hashes
