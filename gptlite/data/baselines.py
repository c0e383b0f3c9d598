"""What simple models of bytes and compressors make of a text: lines to compare a model's bits per byte with."""

from __future__ import annotations

import lzma
import math
import zlib
from dataclasses import dataclass

import numpy as np

TELLING_BYTES = 1000  # of a shorter text, gzip and xz make mostly headers

_GZIP = 31  # zlib's window bits for a gzip header and trailer around the stream
_AT_ONCE = 1 << 20  # bytes whose pairs are counted at a time


@dataclass(frozen=True)
class Baselines:
    """Bits per byte of a text, its documents one after the other, nothing else known.

    unigram: entropy of its bytes, each on its own. gzip, xz: size at level 9, headers included.
    bigram: the first byte by the unigram, each later one by its entropy given the byte before it. Both entropies are
    those of the text's own counts, which are given away free; None where an older version prepared the text.
    """

    unigram: float
    gzip: float
    xz: float
    bigram: float | None = None


class ByteMeter:
    """Counts pairs of bytes; feed it a text piece by piece."""

    def __init__(self) -> None:
        self._pairs = np.zeros((256, 256), np.int64)  # [a, b]: how often b came after a
        self._first = b""
        self._waiting = bytearray()  # the last byte that was counted, and what came after it

    def feed(self, text: bytes) -> None:
        """The next piece."""
        self._first = self._first or text[:1]
        for at in range(0, len(text), _AT_ONCE):
            self._waiting += text[at : at + _AT_ONCE]
            if len(self._waiting) > _AT_ONCE:  # a table as large as this is not added to for a few bytes
                self._count()

    def _count(self) -> None:
        joined = np.frombuffer(bytes(self._waiting), np.uint8)
        pairs = joined[:-1].astype(np.int64) << 8 | joined[1:]
        self._pairs += np.bincount(pairs, minlength=1 << 16).reshape(256, 256)
        del self._waiting[:-1]

    def counts(self) -> np.ndarray:
        """How often each byte came: (256,)."""
        self._count()
        counts: np.ndarray = self._pairs.sum(0)
        counts[list(self._first)] += 1
        return counts

    def unigram(self) -> float:
        """Bits per byte of the bytes on their own; of at least one byte."""
        counts = self.counts()
        return _bits(counts) / int(counts.sum())

    def bigram(self) -> float:
        """Bits per byte of the first byte on its own and of each later one after the byte before it."""
        counts = self.counts()
        first = math.log2(counts.sum() / counts[self._first[0]])
        return (first + sum(map(_bits, self._pairs))) / int(counts.sum())


def _bits(counts: np.ndarray) -> float:
    """What it takes to name all of so many things of each kind, by their own frequencies."""
    counts = counts[counts > 0]
    # abs: one kind alone gives -0.0
    return abs(float(-(counts * np.log2(counts / counts.sum())).sum()))


class BaselineMeter:
    """Feed it a text piece by piece; memory does not grow with the text."""

    def __init__(self) -> None:
        self._bytes = ByteMeter()
        self._gzip = zlib.compressobj(9, zlib.DEFLATED, _GZIP)
        self._xz = lzma.LZMACompressor(preset=9)
        self._gzip_bytes = self._xz_bytes = 0

    def feed(self, text: bytes) -> None:
        """The next piece."""
        self._bytes.feed(text)
        self._gzip_bytes += len(self._gzip.compress(text))
        self._xz_bytes += len(self._xz.compress(text))

    def lines(self) -> Baselines:
        """The figures, to four digits; to be called once, after at least one byte."""
        n_bytes = int(self._bytes.counts().sum())
        gzip = 8 * (self._gzip_bytes + len(self._gzip.flush())) / n_bytes
        xz = 8 * (self._xz_bytes + len(self._xz.flush())) / n_bytes
        figures = (self._bytes.unigram(), gzip, xz, self._bytes.bigram())
        return Baselines(*(round(figure, 4) for figure in figures))
