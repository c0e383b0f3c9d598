"""The part of a text that a BPE is trained on: all of it or, of a large text, blocks spread evenly over it.

What the trainer holds are the different words of the text, each with the places of its pairs. Python's source code has
few of them, Chinese, whose words run from one punctuation mark to the next, hardly any twice. So there is a bound for
the text and one for its different words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from gptlite.tokenizers.cuts import CUT

SAMPLE_BYTES = 64 << 20  # of text
WORD_BYTES = 5 << 19  # of different words; one byte takes the trainer a hundred
_BLOCK = 1 << 16  # characters; each core splits so many at a time, which takes 80 times their memory
_LONGEST = 1 << 12  # characters of a word; the time for a merge in it grows with the square
_TEXT_BYTES = 64  # what Python adds to a text, however short

# About what the pattern takes for words: without numbers, which are cut every three digits.
_WORD = re.compile(r"[^\s\d!-/:-@\[-`{-~]+|[!-/:-@\[-`{-~]+")

_Block = Sequence[bytes]  # texts, or parts of them


def sample(texts: Iterable[str]) -> Iterator[str]:
    """The texts in blocks, or every second, fourth, ... block of them. It depends on the texts alone.

    At most SAMPLE_BYTES of text with WORD_BYTES of different words are taken, and held in memory.
    """
    kept: list[_Block] = []
    step = 1  # kept[i] is block i * step
    n_bytes, words = 0, _Words()
    for number, block in enumerate(_blocks(texts)):
        if number % step:
            continue
        kept.append(block)
        n_bytes += _size(block)
        words.add(block)
        while (n_bytes > SAMPLE_BYTES or words.n_bytes > WORD_BYTES) and len(kept) > 1:
            kept, step = kept[::2], 2 * step
            n_bytes, words = sum(map(_size, kept)), _Words(kept)
    del words
    kept.reverse()
    while kept:  # the memory of each block is free as soon as the trainer has it
        yield from (part.decode() for part in kept.pop())


class _Words:
    """Different words. n_bytes: of all of them."""

    def __init__(self, blocks: Iterable[_Block] = ()) -> None:
        self.n_bytes = 0
        self._seen: set[str] = set()
        for block in blocks:
            self.add(block)

    def add(self, block: _Block) -> None:
        for part in block:
            new = set(_WORD.findall(part.decode())) - self._seen
            self._seen |= new
            self.n_bytes += sum(len(word.encode()) for word in new)


def _size(block: _Block) -> int:
    return sum(len(part) + _TEXT_BYTES for part in block)


def _blocks(texts: Iterable[str]) -> Iterator[_Block]:
    """The texts in blocks: one part of a long text, or several short texts."""
    block: list[bytes] = []
    size = 0
    for text in texts:
        for part in _parts(text):
            block.append(part.encode())
            size += len(part)
            if size >= _BLOCK:
                yield block
                block, size = [], 0
    if block:
        yield block


def _parts(text: str) -> Iterator[str]:
    """A text, cut where the pattern splits it anyway; where there is no such place for a whole block, anywhere."""
    start = 0
    while start < len(text):
        least, most = start + _BLOCK, start + 2 * _BLOCK
        if cut := CUT.search(text, least, most):
            yield text[start : cut.start()]
            start = cut.start()
        elif most < len(text):
            yield from (text[at : min(at + _LONGEST, least)] for at in range(start, least, _LONGEST))
            start = least
        else:
            yield text[start:]
            return
