"""Shards: the files of token ids of a prepared data set.

    train-00000.bin   64 bytes of header, then ids, little endian
                      header: magic "GPTLITE\\0", version u32, dtype code u32 (1 = uint16, 2 = uint32), tokens u64,
                      documents u64, sha256 of the ids (32 bytes)
    train-00000.idx   u64 per document that begins in this shard: the position of its first token in it

A document may continue in the next shard. The manifest has the same counts and hashes, so every damaged byte is found.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gptlite import files
from gptlite.errors import DataError

MAGIC = b"GPTLITE\0"
FORMAT_VERSION = 1
SHARD_TOKENS = 100_000_000
_HEADER = struct.Struct("<8sIIQQ32s")
_DTYPES: dict[int, np.dtype[np.unsignedinteger[Any]]] = {1: np.dtype("<u2"), 2: np.dtype("<u4")}
_BUFFER_BYTES = 4 << 20


@dataclass(frozen=True)
class Shard:
    """One .bin file and its .idx file. The hashes are those of the ids and of the index."""

    file: str
    tokens: int
    documents: int
    sha256: str
    index_sha256: str

    def header(self, vocab_size: int) -> bytes:
        """The first 64 bytes of the file."""
        digest = bytes.fromhex(self.sha256)
        return _HEADER.pack(MAGIC, FORMAT_VERSION, _dtype_code(vocab_size), self.tokens, self.documents, digest)


def _dtype_code(vocab_size: int) -> int:
    return 1 if vocab_size <= 65536 else 2


def dtype_for(vocab_size: int) -> np.dtype[np.unsignedinteger[Any]]:
    """uint16 if all ids fit, else uint32."""
    return _DTYPES[_dtype_code(vocab_size)]


class ShardWriter(AbstractContextManager["ShardWriter"]):
    """Writes one split into `folder`, document by document. A killed writer leaves a file with an empty header."""

    def __init__(self, folder: Path, split: str, vocab_size: int, shard_tokens: int = SHARD_TOKENS) -> None:
        self._folder, self._split = folder, split
        self._vocab_size, self._shard_tokens = vocab_size, shard_tokens
        self._done: list[Shard] = []
        self._file: files.OutFile | None = None

    def add(self, ids: Iterable[int] | npt.NDArray[np.uint32]) -> None:
        """Append one document of at least one id."""
        left = np.asarray(ids, np.uint32)
        assert left.size, "a document has at least one id"
        assert int(left.max()) < self._vocab_size, "ids are the tokenizer's"
        first = True
        while left.size:
            if self._file is None:
                self._begin()
            if first:
                self._starts.append(self._tokens)
                first = False
            piece, left = np.split(left, [self._shard_tokens - self._tokens])
            self._tokens += piece.size
            self._buffer += piece.astype(dtype_for(self._vocab_size)).tobytes()
            full = self._tokens == self._shard_tokens
            if full or len(self._buffer) >= _BUFFER_BYTES:
                self._flush()
            if full:
                self._end()

    def finish(self) -> tuple[Shard, ...]:
        """Complete the last shard. Returns all shards in order."""
        if self._file is not None:
            self._flush()
            self._end()
        return tuple(self._done)

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def _begin(self) -> None:
        self._name = f"{self._split}-{len(self._done):05d}.bin"
        self._tokens = 0
        self._starts: list[int] = []
        self._buffer = bytearray()
        self._digest = hashlib.sha256()
        self._file = files.OutFile.create(self._folder / self._name)
        self._file.write(bytes(_HEADER.size))

    def _flush(self) -> None:
        assert self._file is not None
        self._digest.update(self._buffer)
        self._file.write(self._buffer)
        self._buffer = bytearray()

    def _end(self) -> None:
        assert self._file is not None
        index = np.array(self._starts, "<u8").tobytes()
        _, index_sha256 = files.write_new((self._folder / self._name).with_suffix(".idx"), index)
        shard = Shard(self._name, self._tokens, len(self._starts), self._digest.hexdigest(), index_sha256)
        self._file.overwrite(0, shard.header(self._vocab_size))
        self._file.sync()
        self._file.close()
        self._file = None
        self._done.append(shard)


def map_shard(folder: Path, shard: Shard, vocab_size: int) -> npt.NDArray[np.unsignedinteger[Any]]:
    """The ids of a shard as a read-only memory map, (tokens,).

    DataError when a file is missing, has another size, or a header that does not match the manifest.
    """
    dtype, path = dtype_for(vocab_size), folder / shard.file
    _check_size(path, _HEADER.size + shard.tokens * dtype.itemsize)
    _check_size(path.with_suffix(".idx"), shard.documents * 8)
    with path.open("rb") as file:
        if file.read(_HEADER.size) != shard.header(vocab_size):
            raise damaged(path, "the header does not match manifest.json")
    return np.memmap(path, dtype, "r", offset=_HEADER.size, shape=(shard.tokens,))


def document_lengths(folder: Path, shards: Sequence[Shard]) -> npt.NDArray[np.int64]:
    """Number of ids of each document of a split, which may be in several shards: (documents,)."""
    starts, before = [], 0
    for shard in shards:
        index = np.fromfile((folder / shard.file).with_suffix(".idx"), "<u8")  # positions in this shard
        starts.append(before + index.astype(np.int64))
        before += shard.tokens
    return np.diff(np.concatenate([*starts, [before]]))


def verify_shard(folder: Path, shard: Shard, vocab_size: int) -> None:
    """Read all of a shard. DataError when any byte differs from what was written."""
    ids = map_shard(folder, shard, vocab_size)
    if hashlib.sha256(ids.data).hexdigest() != shard.sha256:
        raise damaged(folder / shard.file, "the sha256 does not match manifest.json")
    index = (folder / shard.file).with_suffix(".idx")
    if files.file_sha256(index) != shard.index_sha256:
        raise damaged(index, "the sha256 does not match manifest.json")


def _check_size(path: Path, size: int) -> None:
    found = path.stat().st_size if path.exists() else None
    if found is None:
        raise damaged(path, "the file is missing")
    if found != size:
        raise damaged(path, f"the file has {found} bytes instead of {size}")


def damaged(path: Path, problem: str) -> DataError:
    """The error for a file of a prepared data set that is not what was written."""
    return DataError(
        f"the prepared data is damaged: {problem}. Remove its folder and prepare the text again.", str(path)
    )
