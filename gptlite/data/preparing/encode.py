"""Encoding a corpus into shards: blocks in parallel, written in order, continued after a kill at the last shard.

What is written depends neither on the number of workers nor on how often it was interrupted: a shard is a number of
whole blocks. An unfinished folder has a manifest, too, which is replaced after each shard. It lists the files so far,
and how many blocks of each split are in them.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np

from gptlite.data.dataset.manifest import SPLITS, Baselines, SplitName
from gptlite.data.dataset.prepared import dtype_for, header, shard_name
from gptlite.data.preparing.baselines import MAX_PPMD_BYTES, BaselineMeter, ppmd
from gptlite.data.preparing.corpus import Corpus, Part
from gptlite.storage.sealed import FileRecord, SealedFolder, write_file, write_manifest
from gptlite.tokenizers.base import Tokenizer
from gptlite.tokenizers.bpe import last_cut
from gptlite.tokenizers.char import CharacterSet
from gptlite.tokenizers.folder import Ids

SHARD_TOKENS = 100_000_000  # at least, but in the last one
_AHEAD = 2  # blocks per worker that are in memory at a time

BLOCK_BYTES = 1 << 17  # larger ones leave the caches of a core, and take three times as long
LONGEST = 1 << 20  # bytes without a place for a cut

SAMPLE_BYTES = 64 << 20  # of text that a BPE learns from
WORD_BYTES = 5 << 19  # of its different words; one byte takes the trainer a hundred
_PART_BYTES = 64  # what Python adds to a text, however short
_LONG_WORD, _WORD_PART = 1 << 15, 1 << 12  # characters; the time for a merge in a word grows with its square
_WHITE_SPACE = re.compile(r"\s")
# About what a BPE takes for words: without numbers, which are cut every three digits.
_WORD = re.compile(r"[^\s\d!-/:-@\[-`{-~]+|[!-/:-@\[-`{-~]+")

T = TypeVar("T")
U = TypeVar("U")


class Encoded:
    """The files of an unfinished folder by name, and what was noticed while the text was encoded.

    text_bytes: of each split. trained: the characters of the training text; recent: its last bytes, for PPMd.
    baselines: of the validation text. forced_cuts: places where a text was cut although that may have changed ids.
    """

    baselines: Baselines

    def __init__(self, files: Mapping[str, FileRecord]) -> None:
        self.files, self.text_bytes, self.forced_cuts = dict(files), Counter[SplitName](), 0
        self.trained, self.recent, self.validation = CharacterSet(), bytearray(), BaselineMeter()

    def take(self, split: SplitName, found: Iterable[list[Part]]) -> Iterator[list[Part]]:
        """Yield the blocks of a split again."""
        for block in found:
            self.text_bytes[split] += sum(len(part.text) for part in block)
            self.forced_cuts += sum(part.forced for part in block)
            for part in block:
                (self._add if split == "train" else self.validation.feed)(part.text)
            yield block

    def _add(self, text: bytes) -> None:
        self.trained.add(text)
        self.recent += text
        if len(self.recent) > 2 * MAX_PPMD_BYTES:
            del self.recent[:-MAX_PPMD_BYTES]


def encode_corpus(
    folder: SealedFolder, corpus: Corpus, tokenizer: Tokenizer, *, workers: int = 1, shard_tokens: int = SHARD_TOKENS
) -> Encoded:
    """Write the shards of both splits into an unfinished folder, after those that it has.

    DataError where the text changed.
    """
    encoded, done = Encoded(folder.files), Counter(folder.fields["done"])
    work = partial(encode_block, tokenizer=tokenizer, mark_documents=corpus.has_several_documents)
    with ThreadPoolExecutor(workers) as pool, ThreadPoolExecutor(1) as measuring:
        for split in reversed(SPLITS):  # so that the validation text is compressed while the training text is encoded
            found = encoded.take(split, blocks(corpus.parts(split), tokenizer.last_cut))
            left = itertools.islice(found, done[split], None)
            # Looking characters up costs less than handing blocks to other threads.
            ids = map(work, left) if tokenizer.kind == "char" else in_order(pool, work, left, workers * _AHEAD)
            number = sum(name.startswith(f"{split}-") for name in encoded.files)
            while (first := next(ids, None)) is not None:
                shard = _shard(itertools.chain([first], ids), shard_tokens, done, split)
                name, number = shard_name(split, number), number + 1
                encoded.files[name] = write_file(
                    folder.path, name, itertools.chain([header(tokenizer.vocab_size)], shard)
                )
                write_manifest(folder.path, {"done": done}, encoded.files)
            if split == "val":
                baselines = measuring.submit(encoded.validation.finish)
    recent, head = (bytes(text) for text in (encoded.recent[-MAX_PPMD_BYTES:], encoded.validation.head))
    encoded.baselines = replace(baselines.result(), ppmd=ppmd(recent, head))
    return encoded


def _shard(ids: Iterable[Ids], least: int, done: Counter[str], split: SplitName) -> Iterator[memoryview]:
    """Yield the bytes of blocks that together have at least so many ids, and count the blocks of the split."""
    tokens = 0
    for block in ids:
        tokens += len(block)
        done[split] += 1
        yield block.data
        if tokens >= least:
            return


def encode_block(block: list[Part], tokenizer: Tokenizer, *, mark_documents: bool) -> Ids:
    """Return the ids of a block, (n,). mark_documents: begin each document with end-of-text."""
    dtype = dtype_for(tokenizer.vocab_size)
    end_of_text = np.array([tokenizer.eot_id], dtype)
    ids: list[Ids] = []
    for part in block:
        ids += [end_of_text] * (part.begins and mark_documents)
        ids.append(tokenizer.encode(part.text).astype(dtype, copy=False))
    return np.concatenate(ids)


def in_order(pool: ThreadPoolExecutor, work: Callable[[T], U], items: Iterable[T], ahead: int) -> Iterator[U]:
    """Yield the results of `work`, in the order of the items, of which at most `ahead` are taken before their turn."""
    futures: deque[Future[U]] = deque()
    try:
        for item in items:
            futures.append(pool.submit(work, item))
            if len(futures) >= ahead:
                yield futures.popleft().result()
        while futures:
            yield futures.popleft().result()
    finally:
        for future in futures:
            future.cancel()


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
    """Join the parts of each document, and cut it again where that changes no ids."""
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
            new = set[str]().union(*(_WORD.findall(text.decode()) for texts in added for text in texts)) - words
            words |= new
            word_bytes += sum(len(word.encode()) for word in new)
            if len(kept) == 1 or (size <= SAMPLE_BYTES and word_bytes <= WORD_BYTES):
                break
            added = kept = kept[::2]
            step, size, words, word_bytes = 2 * step, 0, set(), 0
    for text in (text.decode() for texts in kept for text in texts):
        starts = range(0, len(text) - _LONG_WORD, _LONG_WORD)
        is_long = not all(_WHITE_SPACE.search(text, at, at + _LONG_WORD) for at in starts)
        yield from (text[at : at + _WORD_PART] for at in range(0, len(text), _WORD_PART)) if is_long else (text,)
