"""Baselines: the bits per byte that simple models of bytes and compressors need for a text."""

from __future__ import annotations

import lzma
import math
import zlib

import numpy as np
import numpy.typing as npt
import pyppmd

from gptlite.data.dataset.manifest import Baselines

MAX_COMPRESSOR_BYTES = 2 << 20  # gzip and xz read no more of a longer text: xz takes a second per megabyte

MAX_PPMD_BYTES = 16 << 20  # of training text, its last ones: PPMd reads about three megabytes a second
ORDERS = (4, 5, 6, 8, 16, 64)  # of PPMd: the most bytes that it predicts the next one from
_ORDER_BYTES = 1 << 20  # of training text, by which the order is chosen
# Bytes for each byte of text, at least and at most: where its memory is full, PPMd forgets everything.
_PPMD_MEMORY = 32, 1 << 20, 512 << 20

_GZIP = 31  # zlib's window bits for a stream with the header and trailer of gzip
# A larger dictionary, as -9 has it, finds the same and takes longer.
_XZ = {"id": lzma.FILTER_LZMA2, "preset": 9, "dict_size": MAX_COMPRESSOR_BYTES}
_BLOCK = 1 << 20  # bytes whose pairs are counted at a time


class BaselineMeter:
    """Computes the baselines of a text that is fed piece by piece. Its memory does not grow with the text.

    head: the first bytes of the text, which the compressors read.
    """

    def __init__(self) -> None:
        self._pairs = np.zeros((256, 256), np.int64)  # [a, b]: how often b follows a
        self._uncounted = bytearray()  # begins with the last counted byte
        self.head = bytearray()

    def feed(self, text: bytes) -> None:
        """Add the next piece of the text."""
        self.head += text[: MAX_COMPRESSOR_BYTES - len(self.head)]
        for at in range(0, len(text), _BLOCK):
            self._uncounted += text[at : at + _BLOCK]
            if len(self._uncounted) > _BLOCK:  # adding to the large table is not worth it for a few bytes
                self._count()

    def _count(self) -> None:
        joined = np.frombuffer(bytes(self._uncounted), np.uint8)
        pairs = joined[:-1].astype(np.int64) << 8 | joined[1:]
        self._pairs += np.bincount(pairs, minlength=1 << 16).reshape(256, 256)
        del self._uncounted[:-1]

    def finish(self) -> Baselines:
        """Return the baselines, rounded to four digits. At least one byte must have been fed."""
        self._count()
        counts: npt.NDArray[np.int64] = self._pairs.sum(0)
        counts[self.head[0]] += 1
        first = math.log2(counts.sum() / counts[self.head[0]])
        unigram = _total_bits(counts) / int(counts.sum())
        bigram = (first + sum(map(_total_bits, self._pairs))) / int(counts.sum())
        xz = lzma.compress(self.head, filters=[_XZ])
        gzip = zlib.compress(self.head, 9, _GZIP)
        sizes = (8 * len(compressed) / len(self.head) for compressed in (gzip, xz))
        return Baselines(*(round(bits, 4) for bits in (unigram, *sizes, bigram)))


def ppmd(training: bytes, text: bytes) -> float:
    """Return the bits per byte that PPMd needs for `text` after it has read `training`, rounded to four digits.

    PPMd (Cleary and Witten 1984; Shkarin 2002, variant H) predicts each byte from the longest earlier context, and goes
    on learning while it reads `text`. The order is that which codes the last tenth of the training text best.
    """
    recent = training[-_ORDER_BYTES:]
    cut = len(recent) - len(recent) // 10
    order = min(ORDERS, key=lambda order: _ppmd_bytes(order, recent[:cut], recent[cut:]))
    return round(8 * _ppmd_bytes(order, training, text) / len(text), 4)


def _ppmd_bytes(order: int, before: bytes, text: bytes) -> int:
    """Return the bytes that `text` takes after another. As many of each wait in the coder, so nothing is flushed."""
    per_byte, least, most = _PPMD_MEMORY
    encoder = pyppmd.Ppmd7Encoder(order, min(most, max(least, per_byte * (len(before) + len(text)))))
    encoder.encode(before)
    return len(encoder.encode(text))


def _total_bits(counts: npt.NDArray[np.int64]) -> float:
    """Return the bits needed to encode symbols with these counts under their own frequencies."""
    counts = counts[counts > 0]
    # abs: a single symbol gives -0.0
    return abs(float(-(counts * np.log2(counts / counts.sum())).sum()))
