"""What simple compressors make of the validation text: lines to compare a model's bits per byte with."""

from __future__ import annotations

import lzma
import zlib
from dataclasses import dataclass

import numpy as np

_GZIP = 31  # zlib's window bits for a gzip header and trailer around the stream


@dataclass(frozen=True)
class ReferenceLines:
    """Bits per byte of the validation text, its documents one after the other, nothing else known.

    unigram: entropy of its bytes, each on its own. gzip, xz: size at level 9, headers included.
    """

    unigram: float
    gzip: float
    xz: float


class ReferenceMeter:
    """Feed it the validation text piece by piece; memory does not grow with the text."""

    def __init__(self) -> None:
        self._counts = np.zeros(256, np.int64)
        self._gzip = zlib.compressobj(9, zlib.DEFLATED, _GZIP)
        self._xz = lzma.LZMACompressor(preset=9)
        self._gzip_bytes = self._xz_bytes = 0

    def feed(self, text: bytes) -> None:
        """The next piece."""
        self._counts += np.bincount(np.frombuffer(text, np.uint8), minlength=256)
        self._gzip_bytes += len(self._gzip.compress(text))
        self._xz_bytes += len(self._xz.compress(text))

    def lines(self) -> ReferenceLines:
        """The figures, to four digits; to be called once, after at least one byte."""
        n_bytes = int(self._counts.sum())
        share = self._counts[self._counts > 0] / n_bytes
        gzip = self._gzip_bytes + len(self._gzip.flush())
        xz = self._xz_bytes + len(self._xz.flush())
        unigram = abs(float(-(share * np.log2(share)).sum()))  # abs: one byte value alone gives -0.0
        return ReferenceLines(round(unigram, 4), round(8 * gzip / n_bytes, 4), round(8 * xz / n_bytes, 4))
