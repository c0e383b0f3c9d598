"""Encoding a corpus into shards: blocks in parallel, written in order, continued after a kill at the last shard.

What is written does not depend on the number of workers, nor on how often it was interrupted. After each finished shard
PROGRESS_FILE is replaced: it lists the shards and says in which block of its split the next one begins.
"""

from __future__ import annotations

import dataclasses
import shutil
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import Field, TypeAdapter, ValidationError

from gptlite.data.dataset.shards import SHARD_TOKENS, Count, Shard, ShardWriter, dtype_for, verified_ids, verify_ids
from gptlite.data.preparing.baselines import BaselineMeter, Baselines
from gptlite.data.preparing.blocks import Block, EncodedBlock, blocks, encode_block
from gptlite.data.preparing.corpus import Corpus
from gptlite.data.preparing.overlap import Overlap, OverlapMeter, choose_share, sample
from gptlite.data.preparing.split import SPLITS, SplitName
from gptlite.errors import DataError, StorageError
from gptlite.formatting import size
from gptlite.storage import files
from gptlite.storage.json_files import SEALED_VERSION, check_version, read_sealed, write_sealed
from gptlite.tokenizers.base import Tokenizer
from gptlite.tokenizers.char import CharacterSet

PROGRESS_FILE = "progress.json"
_AHEAD = 2  # blocks per worker that are in memory at a time

T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True)
class Progress:
    """The finished part of a split. The next shard begins in `block`, before which there are `tokens_before` ids."""

    shards: tuple[Shard, ...] = ()
    block: Annotated[int, Field(ge=0)] = 0
    tokens_before: Count = 0


@dataclass(frozen=True)
class EncodedSplit:
    """The files that were written of a split. text_bytes: of its text."""

    shards: tuple[Shard, ...]
    text_bytes: int


@dataclass(frozen=True)
class EncodedCorpus:
    """Both splits, the characters that only the validation text has, its baselines, the overlap, the forced cuts."""

    train: EncodedSplit
    val: EncodedSplit
    val_only: str
    baselines: Baselines
    overlap: Overlap
    forced_cuts: int


class _SplitWriter:
    """Writes the blocks of a split, from where an earlier process was stopped."""

    def __init__(
        self, folder: Path, split: SplitName, tokenizer: Tokenizer, shard_tokens: int, progress: Progress
    ) -> None:
        self._resumed = progress
        self.progress = progress
        for shard in progress.shards:
            verify_ids(folder, shard, tokenizer.vocab_size)
        self.writer = ShardWriter(folder, split, tokenizer.vocab_size, shard_tokens, done=progress.shards)

    def is_written(self, block: Block) -> bool:
        """Whether all ids of a block are in finished shards."""
        return block.number < self._resumed.block

    def add(self, block: Block, encoded: EncodedBlock) -> bool:
        """Write the ids of a block. Returns whether a shard was ended."""
        ids, starts = encoded.ids, encoded.starts
        before = self.writer.tokens
        if block.number == self._resumed.block:
            written = before - self._resumed.tokens_before
            ids, starts, before = ids[written:], starts[starts >= written] - written, self._resumed.tokens_before
        shards = len(self.writer.done)
        self.writer.add(ids, starts)
        if len(self.writer.done) == shards:
            return False
        self.progress = Progress(self.writer.done, block.number, before)
        return True


def free_bytes(folder: Path) -> int:
    """Free space on the disk that holds, or will hold, `folder`."""
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    return shutil.disk_usage(existing).free


def check_space(folder: Path, corpus: Corpus, tokenizer: Tokenizer) -> None:
    """StorageError where the ids of a corpus will not fit on the disk of `folder`: a small file may unpack to a large
    text. How many ids a byte of text has is taken from the first piece of it."""
    free, most = free_bytes(folder), int(corpus.sizes.sum()) * dtype_for(tokenizer.vocab_size).itemsize
    if most <= free:
        return
    text = next(corpus.parts(having="train")).text
    needed = most * len(tokenizer.encode(text.decode(errors="ignore"))) // len(text)
    if needed > free:
        raise StorageError(
            f"the ids of this text will take about {size(needed)}, and {size(free)} are free here. Free some space, or "
            "set data.dir to a folder on another disk.",
            str(folder),
        )


def encode_corpus(
    folder: Path, corpus: Corpus, tokenizer: Tokenizer, *, workers: int = 1, shard_tokens: int = SHARD_TOKENS
) -> EncodedCorpus:
    """Write the shards of both splits into `folder`, after those that PROGRESS_FILE says are finished.

    DataError where the tokenizer cannot encode the text, where that changed, and where a finished shard is damaged.
    """
    progress = read_progress(folder)
    _remove_unfinished(folder, progress.values())
    splits = {name: _SplitWriter(folder, name, tokenizer, shard_tokens, progress[name]) for name in SPLITS}
    share = choose_share(int(corpus.sizes.sum()))
    overlap, trained = OverlapMeter(), CharacterSet()
    text_bytes, forced_cuts = Counter[SplitName](), 0

    def encode(block: Block) -> tuple[Block, EncodedBlock | None]:
        if splits[block.split].is_written(block):
            return block, None
        return block, encode_block(block, tokenizer, mark_documents=corpus.has_several_documents)

    with ExitStack() as opened:
        for split in splits.values():
            opened.enter_context(split.writer)
        pool = opened.enter_context(ThreadPoolExecutor(workers))
        measuring = opened.enter_context(ThreadPoolExecutor(1))
        stopped = threading.Event()
        opened.callback(stopped.set)  # before the threads are waited for
        baselines = measuring.submit(_baselines, corpus, stopped)
        plain = blocks(corpus.parts(), tokenizer.last_cut)
        # Looking characters up costs less than handing blocks to other threads.
        in_turn = map(encode, plain) if tokenizer.kind == "char" else in_order(pool, encode, plain, workers * _AHEAD)
        for block, encoded in in_turn:
            if encoded is not None and splits[block.split].add(block, encoded):
                write_progress(folder, {name: split.progress for name, split in splits.items()})
            text_bytes[block.split] += sum(map(len, block.texts))
            overlap.add(block.split, sample(block.texts, share))
            forced_cuts += block.forced
            if block.split == "train":
                for text in block.texts:
                    trained.add(text)
        found = baselines.result()
        train, val = (EncodedSplit(splits[name].writer.finish(), text_bytes[name]) for name in SPLITS)
    val_only = "".join(sorted(set(corpus.characters) - set(trained.sorted())))
    return EncodedCorpus(train, val, val_only, found, overlap.finish(), forced_cuts)


def _baselines(corpus: Corpus, stopped: threading.Event) -> Baselines:
    """Those of the validation text, which is read for them once more: it may come last, and xz takes a second."""
    meter = BaselineMeter()
    for part in corpus.parts(having="val"):
        if stopped.is_set():  # nobody waits for the result, and the text may be long
            raise CancelledError
        if part.split == "val":
            meter.feed(part.text)
    return meter.finish()


def count_ids(folder: Path, shards: Iterable[Shard], vocab_size: int) -> npt.NDArray[np.int64]:
    """Count how often each id occurs in the shards of a split: (vocab_size,)."""
    counts = np.zeros(vocab_size, np.int64)
    for shard in shards:
        for ids in verified_ids(folder, shard, vocab_size):
            counts += np.bincount(ids, minlength=vocab_size)
    return counts


def _remove_unfinished(folder: Path, progress: Iterable[Progress]) -> None:
    """Remove the files, but not the tokenizer's, that a killed process was about to write."""
    finished = {name for split in progress for shard in split.shards for name in (shard.file, shard.index)}
    for path in sorted(folder.iterdir()):
        if path.name not in finished and path.name != PROGRESS_FILE and not path.is_dir():
            files.remove_tree(path)


def in_order(pool: ThreadPoolExecutor, work: Callable[[T], U], items: Iterable[T], ahead: int) -> Iterator[U]:
    """The results of `work`, in the order of the items, of which at most `ahead` are taken before their turn."""
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


def read_progress(folder: Path) -> dict[SplitName, Progress]:
    """Read what is finished in a folder. DataError if its PROGRESS_FILE is damaged."""
    path = folder / PROGRESS_FILE
    fields = read_sealed(path, DataError)
    check_version(path, fields, SEALED_VERSION, error=DataError)
    try:
        return {name: TypeAdapter(Progress).validate_python(fields[name]) for name in SPLITS}
    except (ValidationError, KeyError):
        raise DataError("this is not the progress of a preparation. Remove its folder.", str(path)) from None


def write_progress(folder: Path, progress: Mapping[SplitName, Progress]) -> None:
    """Write or replace the PROGRESS_FILE of a folder."""
    write_sealed(folder / PROGRESS_FILE, {name: dataclasses.asdict(each) for name, each in progress.items()})
