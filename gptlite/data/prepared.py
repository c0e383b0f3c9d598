"""Reading a prepared data set: manifest, tokenizer, ids of both splits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from gptlite.data.manifest import Manifest, SplitRecord, read_manifest
from gptlite.data.shards import document_lengths, dtype_for, map_shard, verify_shard
from gptlite.data.split import SplitName
from gptlite.data.tokens import Ids, check_range, check_scorable, check_trainable
from gptlite.errors import DataError, Problem, gathered
from gptlite.tokenizers.base import Tokenizer, load

TOKENIZER_FOLDER = "tokenizer"


class Split:
    """The ids of one split as one sequence, whatever the number of shards."""

    def __init__(self, folder: Path, name: SplitName, record: SplitRecord, vocab_size: int) -> None:
        self.where = f"{folder} ({name})"
        self.n_tokens = record.tokens
        self._dtype = dtype_for(vocab_size)
        self._ids = [map_shard(folder, shard, vocab_size) for shard in record.shards]
        self._ends = np.cumsum([shard.tokens for shard in record.shards])

    def read(self, start: int, length: int) -> Ids:
        """A copy of ids start .. start + length - 1, (length,). IndexError outside the split."""
        check_range(start, length, self.n_tokens)
        ids = np.empty(length, self._dtype)
        filled, shard = 0, int(np.searchsorted(self._ends, start, "right"))
        while filled < length:
            inside = start + filled - int(self._ends[shard]) + len(self._ids[shard])
            piece = self._ids[shard][inside : inside + length - filled]
            ids[filled : filled + len(piece)] = piece
            filled, shard = filled + len(piece), shard + 1
        return ids


class Prepared:
    """A prepared data set on disk. Opening it checks versions and sizes; `verify` reads every byte."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.manifest: Manifest = read_manifest(path)
        self._records: dict[SplitName, SplitRecord] = {"train": self.manifest.train, "val": self.manifest.val}
        vocab_size = self.manifest.tokenizer.vocab_size
        self._splits = {name: Split(path, name, record, vocab_size) for name, record in self._records.items()}

    def split(self, name: SplitName) -> Split:
        """The ids of "train" or "val"."""
        return self._splits[name]

    def document_lengths(self, name: SplitName) -> npt.NDArray[np.int64]:
        """Number of tokens of each document of a split, end-of-text included: (documents,)."""
        return document_lengths(self.path, self._records[name].shards)

    def tokenizer(self) -> Tokenizer:
        """Load the tokenizer of the ids. DataError when the folder has another one."""
        loaded = load(self.path / TOKENIZER_FOLDER)
        expected = self.manifest.tokenizer.fingerprint
        if loaded.fingerprint != expected:
            raise DataError(
                f"this is not the tokenizer of the ids: its fingerprint begins with {loaded.fingerprint[:12]}, theirs "
                f"with {expected[:12]}. Remove the folder {self.path} and prepare the text again.",
                str(self.path / TOKENIZER_FOLDER),
            )
        return loaded

    def check_block_size(self, block_size: int) -> None:
        """DataError, naming the largest block_size that works, unless both splits are long enough.

        A training window takes block_size + 1 tokens, the last one only as a target. Validation text may be shorter,
        but needs two tokens.
        """
        check_trainable(self.split("train"), block_size)
        check_scorable(self.split("val"))

    def verify(self) -> None:
        """Read every byte. One DataError names all damaged files."""
        problems: list[Problem] = []
        for shard in (*self.manifest.train.shards, *self.manifest.val.shards):
            with gathered(problems):
                verify_shard(self.path, shard, self.manifest.tokenizer.vocab_size)
        with gathered(problems):
            self.tokenizer()
        if problems:
            raise DataError(problems)
