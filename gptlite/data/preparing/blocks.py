"""Blocks of text that are encoded one by one, and together give the ids that the whole documents would give."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from gptlite.data.preparing.corpus import Corpus, Part
from gptlite.tokenizers.bpe import last_cut

BLOCK_BYTES = 1 << 17  # larger ones leave the caches of a core, and take three times as long
LONGEST = 1 << 20  # bytes without a place for a cut

SAMPLE_BYTES = 64 << 20  # of text that a BPE learns from
WORD_BYTES = 5 << 19  # of its different words; one byte takes the trainer a hundred
_PART_BYTES = 64  # what Python adds to a text, however short
_LONG_WORD, _WORD_PART = 1 << 16, 1 << 12  # characters; the time for a merge in a word grows with its square
# About what a BPE takes for words: without numbers, which are cut every three digits.
_WORD = re.compile(r"[^\s\d!-/:-@\[-`{-~]+|[!-/:-@\[-`{-~]+")


def blocks(parts: Iterable[Part], cut: Callable[[bytes], int]) -> Iterator[list[Part]]:
    """Yield all text in blocks of about BLOCK_BYTES: short documents together, or a piece of a long one.

    cut: Tokenizer.last_cut. Where a text has no such place in LONGEST bytes, it is cut anyway, and the part says so.
    """
    block: list[Part] = []
    size = 0
    for part in _cut(parts, cut):
        block.append(part)
        size += len(part.text)
        if size >= BLOCK_BYTES:
            yield block
            block, size = [], 0
    if block:
        yield block


def _cut(parts: Iterable[Part], cut: Callable[[bytes], int]) -> Iterator[Part]:
    """The parts of each document joined, and cut again where that changes no ids."""
    begins, text = False, b""
    for part in parts:
        if part.begins:
            if text:
                yield Part(begins, text)
            begins, text = True, b""
        text += part.text
        if len(text) >= BLOCK_BYTES:
            forced = (at := cut(text)) == 0 and len(text) >= LONGEST
            if at := len(text) if forced else at:
                yield Part(begins, text[:at], forced)
                begins, text = False, text[at:]
    if text:
        yield Part(begins, text)


def learning_text(corpus: Corpus) -> Iterator[str]:
    """Yield the training text for a BPE to learn from, or every second, fourth, ... block of a large one.

    At most SAMPLE_BYTES with WORD_BYTES of different words are taken, and held in memory: the trainer holds each
    different word with the places of its pairs. Python's source code has few of them, while in Chinese, whose words
    run from one punctuation mark to the next, hardly any comes twice.
    """
    kept: list[list[bytes]] = []
    step = 1  # kept[i] is block i * step
    size, words, word_bytes = 0, set[str](), 0
    for number, block in enumerate(blocks(corpus.parts("train"), last_cut)):
        if number % step:
            continue
        added = [[part.text for part in block]]
        kept += added
        while True:
            size += sum(len(text) + _PART_BYTES for texts in added for text in texts)
            new = {word for texts in added for text in texts for word in _WORD.findall(text.decode())} - words
            words |= new
            word_bytes += sum(len(word.encode()) for word in new)
            if len(kept) == 1 or (size <= SAMPLE_BYTES and word_bytes <= WORD_BYTES):
                break
            added = kept = kept[::2]
            step, size, words, word_bytes = 2 * step, 0, set(), 0
    for text in (text.decode() for texts in kept for text in texts):
        is_long = max(map(len, text.split()), default=0) > _LONG_WORD
        yield from (text[at : at + _WORD_PART] for at in range(0, len(text), _WORD_PART)) if is_long else (text,)
