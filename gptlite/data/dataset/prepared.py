"""Reading a prepared data set: manifest, tokenizer, ids of both splits in files called shards.

    train-00000.bin   16 bytes of header, then ids, little endian
                      header: magic "GPTLITE\\0", version u32, dtype code u32 (1 = uint16, 2 = uint32)

A document may continue in the next shard. The manifest of the folder has the size and sha256 of each whole file.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np

from gptlite.data.dataset.manifest import MANIFEST_OF, SPLITS, Manifest, SplitName
from gptlite.data.dataset.tokens import check_scorable, check_trainable
from gptlite.errors import Damaged
from gptlite.storage.files import storage_errors
from gptlite.storage.sealed import SealedFolder
from gptlite.tokenizers.base import Tokenizer, load
from gptlite.tokenizers.folder import Ids

TOKENIZER_FOLDER = "tokenizer"
ADVICE = "Restore it, or remove its folder and prepare the text again."

MAGIC, FORMAT_VERSION = b"GPTLITE\0", 2
_HEADER = struct.Struct("<8sII")


def dtype_for(vocab_size: int) -> np.dtype[np.unsignedinteger[Any]]:
    """Return uint16 if all ids fit, else uint32."""
    return np.dtype("<u2" if vocab_size <= 1 << 16 else "<u4")


def header(vocab_size: int) -> bytes:
    """Return the first bytes of each shard."""
    return _HEADER.pack(MAGIC, FORMAT_VERSION, dtype_for(vocab_size).itemsize // 2)


def shard_name(split: str, number: int) -> str:
    """Return the name of a split's shard, which is counted from 0."""
    return f"{split}-{number:05d}.bin"


class Split:
    """The ids of one split as one sequence, whatever the number of shards, which are mapped into memory.

    Raise Damaged where a shard is missing, or has another size or header.
    """

    def __init__(self, folder: SealedFolder, name: SplitName, vocab_size: int) -> None:
        self.where = f"{folder.path} ({name})"
        self._dtype = dtype_for(vocab_size)
        self._shards: list[Ids] = []
        for shard in sorted(file for file in folder.files if file.startswith(f"{name}-")):
            with folder.open_file(shard) as file, storage_errors(folder.path / shard, "map into memory"):
                if file.read(_HEADER.size) != header(vocab_size):
                    raise folder.damaged(shard, "it does not begin as a file of these ids does")
                self._shards.append(np.asarray(np.memmap(file, self._dtype, "r", _HEADER.size)))
        self._ends = np.cumsum(list(map(len, self._shards)), dtype=np.int64)
        self.n_tokens = int(self._ends[-1])

    def read(self, start: int, length: int) -> Ids:
        """Return a copy of ids start .. start + length - 1, (length,)."""
        pieces, shard = [np.zeros(0, self._dtype)], int(np.searchsorted(self._ends, start, "right"))
        while length:
            ids = self._shards[shard]
            inside = start - int(self._ends[shard]) + len(ids)
            pieces.append(ids[inside : inside + length])
            start, length, shard = start + len(pieces[-1]), length - len(pieces[-1]), shard + 1
        return np.concatenate(pieces)


class Prepared:
    """A prepared data set on disk. Opening it checks versions and sizes; `verify` reads every byte."""

    def __init__(self, path: Path) -> None:
        self.path = path
        folder = SealedFolder.open(path, ADVICE)
        self.manifest: Manifest = MANIFEST_OF.validate_python(folder.fields)
        self._splits = {name: Split(folder, name, self.manifest.tokenizer.vocab_size) for name in SPLITS}

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
        """Read every byte. Raise Damaged for the first file that changed."""
        SealedFolder.open(self.path, ADVICE).verified()
