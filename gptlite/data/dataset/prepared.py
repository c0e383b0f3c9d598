"""Reading a prepared data set: manifest, tokenizer, ids of both splits in files called shards.

    train-00000.bin   16 bytes of header, then ids, little endian
                      header: magic "GPTLITE\\0", version u32, dtype code u32 (1 = uint16, 2 = uint32)

A document may continue in the next shard. The manifest of the folder has the size and sha256 of each whole file.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from gptlite.data.dataset.manifest import SPLITS, Manifest, SplitName, manifest_of
from gptlite.data.dataset.tokens import check_range, check_scorable, check_trainable
from gptlite.errors import Damaged
from gptlite.storage.files import storage_errors
from gptlite.storage.sealed import MANIFEST, SealedFolder
from gptlite.tokenizers.base import Tokenizer, load
from gptlite.tokenizers.folder import Ids

TOKENIZER_FOLDER = "tokenizer"
ADVICE = "Restore it, or remove its folder and prepare the text again."

MAGIC, FORMAT_VERSION = b"GPTLITE\0", 2
_HEADER = struct.Struct("<8sII")
_DTYPES: dict[int, np.dtype[np.unsignedinteger[Any]]] = {1: np.dtype("<u2"), 2: np.dtype("<u4")}


def _dtype_code(vocab_size: int) -> int:
    return 1 if vocab_size <= 65536 else 2


def dtype_for(vocab_size: int) -> np.dtype[np.unsignedinteger[Any]]:
    """Return uint16 if all ids fit, else uint32."""
    return _DTYPES[_dtype_code(vocab_size)]


def header(vocab_size: int) -> bytes:
    """Return the first bytes of each shard."""
    return _HEADER.pack(MAGIC, FORMAT_VERSION, _dtype_code(vocab_size))


def shard_name(split: str, number: int) -> str:
    """Return the name of a split's shard, which is counted from 0."""
    return f"{split}-{number:05d}.bin"


class MappedShard:
    """The ids of a shard as a read-only memory map: `ids`, (tokens,).

    Raise Damaged where the file is missing, or has another size or header.
    """

    def __init__(self, folder: SealedFolder, name: str, vocab_size: int) -> None:
        self._folder, self._name, dtype = folder, name, dtype_for(vocab_size)
        with folder.open_file(name) as file, storage_errors(folder.path / name, "map into memory"):
            if file.read(_HEADER.size) != header(vocab_size):
                raise folder.damaged(name, "it does not begin as a file of these ids does")
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._size = len(self._map)
        self.ids: Ids = np.frombuffer(self._map, dtype, (self._size - _HEADER.size) // dtype.itemsize, _HEADER.size)

    def read(self, start: int, stop: int) -> Ids:
        """Return a view of ids start .. stop - 1. Raise Damaged where the file was cut, which would kill a process."""
        if self._map.size() != self._size:
            raise self._folder.damaged(self._name, "the file was cut while it was in use")
        return self.ids[start:stop]


class Split:
    """The ids of one split as one sequence, whatever the number of shards."""

    def __init__(self, folder: SealedFolder, name: SplitName, vocab_size: int) -> None:
        self.where = f"{folder.path} ({name})"
        self._dtype = dtype_for(vocab_size)
        names = sorted(file for file in folder.files if file.startswith(f"{name}-"))
        self._shards = [MappedShard(folder, file, vocab_size) for file in names]
        self._ends = np.cumsum([len(shard.ids) for shard in self._shards], dtype=np.int64)
        self.n_tokens = int(self._ends[-1]) if names else 0

    def read(self, start: int, length: int) -> Ids:
        """Return a copy of ids start .. start + length - 1, (length,). IndexError outside the split."""
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
        folder = SealedFolder.open(path, ADVICE)
        self.manifest: Manifest = manifest_of(folder)
        self._splits = {name: Split(folder, name, self.manifest.tokenizer.vocab_size) for name in SPLITS}
        for name, split in self._splits.items():
            expected: int = getattr(self.manifest, name).tokens
            if split.n_tokens != expected:
                raise folder.damaged(MANIFEST, f"{name}.tokens is {expected}, and its files have {split.n_tokens}")

    def split(self, name: SplitName) -> Split:
        """Return the ids of "train" or "val"."""
        return self._splits[name]

    def tokenizer(self) -> Tokenizer:
        """Load the tokenizer of the ids. Raise Damaged where the folder has another one."""
        loaded, expected = load(self.path / TOKENIZER_FOLDER), self.manifest.tokenizer
        if (loaded.fingerprint, loaded.vocab_size) != (expected.fingerprint, expected.vocab_size):
            raise Damaged(
                f"this is not the tokenizer of the ids: its fingerprint begins with {loaded.fingerprint[:12]} and it "
                f"has {loaded.vocab_size} ids, theirs with {expected.fingerprint[:12]} and {expected.vocab_size}. "
                f"{ADVICE}",
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
        """Read every byte. One Damaged names all damaged files."""
        found = [error for _, error in verify_files(SealedFolder.open(self.path, ADVICE, sizes=False)) if error]
        if found:
            raise Damaged([problem for error in found for problem in error.problems])


def verify_files(folder: SealedFolder) -> Iterator[tuple[str, Damaged | None]]:
    """Read every byte of a prepared folder. Yield the name of each file but the manifest, and what is wrong with it."""
    for name in folder.files:
        try:
            folder.check(name)
        except Damaged as error:
            yield name, error
        else:
            yield name, None
