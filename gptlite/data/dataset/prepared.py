"""Reading a prepared data set: manifest, tokenizer, ids of both splits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gptlite.data.dataset.checked_files import read_checked
from gptlite.data.dataset.manifest import Manifest, SplitRecord, read_manifest
from gptlite.data.dataset.shards import MappedShard, document_lengths, dtype_for, verified_index, verify_ids
from gptlite.data.dataset.tokens import check_range, check_scorable, check_trainable
from gptlite.data.preparing.split import SplitName
from gptlite.errors import DataError, UserError
from gptlite.tokenizers.base import Tokenizer, load
from gptlite.tokenizers.folder import Ids

TOKENIZER_FOLDER = "tokenizer"


class Split:
    """The ids of one split as one sequence, whatever the number of shards."""

    def __init__(self, folder: Path, name: SplitName, record: SplitRecord, vocab_size: int) -> None:
        self.where = f"{folder} ({name})"
        self.n_tokens = record.tokens
        self._dtype = dtype_for(vocab_size)
        self._shards = [MappedShard(folder, shard, vocab_size) for shard in record.shards]
        self._ends = np.cumsum([shard.tokens for shard in record.shards])

    def read(self, start: int, length: int) -> Ids:
        """A copy of ids start .. start + length - 1, (length,). IndexError outside the split."""
        check_range(start, length, self.n_tokens)
        ids = np.empty(length, self._dtype)
        filled, shard = 0, int(np.searchsorted(self._ends, start, "right"))
        while filled < length:
            mapped = self._shards[shard]
            inside = start + filled - int(self._ends[shard]) + len(mapped.ids)
            piece = mapped.read(inside, inside + length - filled)
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

    @property
    def sealed(self) -> bool:
        """Whether the manifest has a seal."""
        return self.manifest.sealed

    def split(self, name: SplitName) -> Split:
        """The ids of "train" or "val"."""
        return self._splits[name]

    def document_lengths(self, name: SplitName) -> npt.NDArray[np.int64]:
        """Number of tokens of each document of a split, end-of-text included: (documents,)."""
        return document_lengths(self.path, self._records[name].shards)

    def tokenizer(self) -> Tokenizer:
        """Load the tokenizer of the ids. DataError when the folder has another one."""
        return load_tokenizer(self.path, self.manifest)

    def check_block_size(self, block_size: int) -> None:
        """DataError, naming the largest block_size that works, unless both splits are long enough.

        A training window takes block_size + 1 tokens, the last one only as a target. Validation text may be shorter,
        but needs two tokens.
        """
        check_trainable(self.split("train"), block_size)
        check_scorable(self.split("val"))

    def verify(self) -> None:
        """Read every byte. One DataError names all damaged files."""
        found = [error for _, error in verify_files(self.path, self.manifest) if error is not None]
        for error in found:
            if not isinstance(error, DataError):
                raise error  # the disk, which says nothing about the content
        if found:
            raise DataError([problem for error in found for problem in error.problems])


def load_tokenizer(folder: Path, manifest: Manifest) -> Tokenizer:
    """Load the tokenizer of a prepared folder. DataError when it is not that of the ids."""
    loaded, expected = load(folder / TOKENIZER_FOLDER), manifest.tokenizer
    if (loaded.fingerprint, loaded.vocab_size) != (expected.fingerprint, expected.vocab_size):
        raise DataError(
            f"this is not the tokenizer of the ids: its fingerprint begins with {loaded.fingerprint[:12]} and it has "
            f"{loaded.vocab_size} ids, theirs with {expected.fingerprint[:12]} and {expected.vocab_size}. Remove the "
            f"folder {folder} and prepare the text again.",
            str(folder / TOKENIZER_FOLDER),
        )
    return loaded


def verify_files(folder: Path, manifest: Manifest) -> Iterator[tuple[str, UserError | None]]:
    """Read every byte of a prepared folder. Yields the name of each file but the manifest, and what is wrong with it.

    Where the files of the tokenizer are what was written, or version 1 did not list them, one more line is for the
    tokenizer that they make.
    """
    vocab_size = manifest.tokenizer.vocab_size
    for shard in (*manifest.train.shards, *manifest.val.shards):
        yield shard.file, _error(verify_ids, folder, shard, vocab_size)
        yield shard.index, _error(verified_index, folder, shard)
    whole = True
    for name, record in sorted((manifest.tokenizer.files or {}).items()):
        error = _error(read_checked, folder / TOKENIZER_FOLDER / name, record.bytes, record.sha256)
        whole = whole and error is None
        yield f"{TOKENIZER_FOLDER}/{name}", error
    if whole:
        yield TOKENIZER_FOLDER, _error(load_tokenizer, folder, manifest)


def _error(check: Callable[..., object], *arguments: object) -> UserError | None:
    try:
        check(*arguments)
    except UserError as error:
        return error
    return None
