"""Shards: the files of token ids of a prepared data set.

    train-00000.bin   64 bytes of header, then ids, little endian
                      header: magic "GPTLITE\\0", version u32, dtype code u32 (1 = uint16, 2 = uint32), tokens u64,
                      documents u64, sha256 of the ids (32 bytes)
    train-00000.idx   u64 per document that begins in this shard: the position of its first token in it

A document may continue in the next shard. The manifest has the same counts and hashes, so every damaged byte is found.
"""

from __future__ import annotations

import hashlib
import mmap
import struct
from array import array
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import numpy as np
import numpy.typing as npt
from pydantic import Field

from gptlite.data.dataset.checked_files import check_sha256, damaged, open_sized, read_checked
from gptlite.storage import files
from gptlite.storage.files import storage_errors
from gptlite.tokenizers.folder import Ids

MAGIC = b"GPTLITE\0"
FORMAT_VERSION = 1
SHARD_TOKENS = 100_000_000
_HEADER = struct.Struct("<8sIIQQ32s")
_DTYPES: dict[int, np.dtype[np.unsignedinteger[Any]]] = {1: np.dtype("<u2"), 2: np.dtype("<u4")}
_BUFFER_BYTES = 4 << 20
_MAX_CACHED = 16 << 20  # written bytes that the system keeps in memory: more would take it from other programs

Count = Annotated[int, Field(ge=0, le=1 << 48)]  # sums of larger ones would overflow
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


@dataclass(frozen=True)
class Shard:
    """One .bin file and its .idx file. The hashes are those of the ids and of the index."""

    file: str
    tokens: Annotated[int, Field(ge=1, le=SHARD_TOKENS)]
    documents: Annotated[int, Field(ge=0, le=SHARD_TOKENS)]
    sha256: Sha256
    index_sha256: Sha256

    @property
    def index(self) -> str:
        """The name of the .idx file."""
        return self.file.removesuffix("bin") + "idx"

    def header(self, vocab_size: int) -> bytes:
        """The first 64 bytes of the file."""
        digest = bytes.fromhex(self.sha256)
        return _HEADER.pack(MAGIC, FORMAT_VERSION, _dtype_code(vocab_size), self.tokens, self.documents, digest)


def _dtype_code(vocab_size: int) -> int:
    return 1 if vocab_size <= 65536 else 2


def dtype_for(vocab_size: int) -> np.dtype[np.unsignedinteger[Any]]:
    """uint16 if all ids fit, else uint32."""
    return _DTYPES[_dtype_code(vocab_size)]


def shard_name(split: str, number: int) -> str:
    """The name of the .bin file of a split's shard, which is counted from 0."""
    return f"{split}-{number:05d}.bin"


class ShardWriter(AbstractContextManager["ShardWriter"]):
    """Writes one split into `folder`. A killed writer leaves a last file with an empty header.

    done: the shards of an earlier writer, which this one continues after.
    """

    def __init__(
        self,
        folder: Path,
        split: str,
        vocab_size: int,
        shard_tokens: int = SHARD_TOKENS,
        *,
        done: Sequence[Shard] = (),
    ) -> None:
        self._folder, self._split = folder, split
        self._vocab_size, self._shard_tokens = vocab_size, shard_tokens
        self._done = list(done)
        self._file: files.OutFile | None = None
        self._cached = 0  # bytes that were written since the cache was last dropped

    @property
    def done(self) -> tuple[Shard, ...]:
        """The finished shards."""
        return tuple(self._done)

    @property
    def tokens(self) -> int:
        """Number of ids so far, also of shards that were done."""
        return sum(shard.tokens for shard in self._done) + (self._tokens if self._file is not None else 0)

    def add(self, ids: Sequence[int] | Ids, starts: Sequence[int] | npt.NDArray[np.int64] = (0,)) -> None:
        """Append ids, (n,), among which documents begin at the positions `starts`, in order."""
        left, begun = np.asarray(ids), np.asarray(starts, np.int64)
        assert left.max(initial=0) < self._vocab_size, "ids are the tokenizer's"
        left = left.astype(dtype_for(self._vocab_size), copy=False)
        while left.size:
            if self._file is None:
                self._begin()
            assert self._file is not None
            piece, left = np.split(left, [self._shard_tokens - self._tokens])
            here, begun = np.split(begun, [np.searchsorted(begun, piece.size)])
            self._starts.extend((here + self._tokens).tolist())
            begun -= piece.size
            self._tokens += piece.size
            self._digest.update(piece.data)
            self._file.write(piece.data)
            self._cached += piece.nbytes
            if self._cached >= _MAX_CACHED:
                self._file.sync(keep_cached=False)
                self._cached = 0
            if self._tokens == self._shard_tokens:
                self._end()

    def finish(self) -> tuple[Shard, ...]:
        """Complete the last shard. Returns all shards in order."""
        if self._file is not None:
            self._end()
        return tuple(self._done)

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def _begin(self) -> None:
        self._name = shard_name(self._split, len(self._done))
        self._tokens = 0
        self._starts = array("Q")
        self._digest = hashlib.sha256()
        self._file = files.OutFile.create(self._folder / self._name)
        self._file.write(bytes(_HEADER.size))

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


class MappedShard:
    """The ids of a shard as a read-only memory map: `ids`, (tokens,).

    DataError when a file is missing, has another size, or a header that does not match the manifest.
    """

    def __init__(self, folder: Path, shard: Shard, vocab_size: int) -> None:
        self._path, dtype = folder / shard.file, dtype_for(vocab_size)
        with open_sized(folder / shard.index, shard.documents * 8):
            pass
        with _open_ids(self._path, shard, vocab_size) as file, storage_errors(self._path, "map into memory"):
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._size = len(self._map)
        self.ids: Ids = np.frombuffer(self._map, dtype, offset=_HEADER.size)

    def read(self, start: int, stop: int) -> Ids:
        """A view of ids start .. stop - 1. DataError where the file was cut: reading past its end kills a process."""
        if self._map.size() != self._size:
            raise damaged(self._path, "the file was cut while it was in use")
        return self.ids[start:stop]


def document_lengths(folder: Path, shards: Sequence[Shard]) -> npt.NDArray[np.int64]:
    """Number of ids of each document of a split, which may be in several shards: (documents,)."""
    starts, before = [], 0
    for shard in shards:
        starts.append(before + verified_index(folder, shard))
        before += shard.tokens
    return np.diff(np.concatenate([*starts, [before]]))


def verified_index(folder: Path, shard: Shard) -> npt.NDArray[np.int64]:
    """The position of each document that begins in a shard: (documents,). DataError when it is not what was written."""
    path = folder / shard.index
    index = np.frombuffer(read_checked(path, shard.documents * 8, shard.index_sha256), "<u8")
    if (index >= shard.tokens).any() or (index[1:] <= index[:-1]).any():
        raise damaged(path, "it does not say where documents begin")
    return index.astype(np.int64)


def verify_ids(folder: Path, shard: Shard, vocab_size: int) -> None:
    """Read all of a .bin file. DataError when any byte differs from what was written."""
    for _ in verified_ids(folder, shard, vocab_size):
        pass


def verified_ids(folder: Path, shard: Shard, vocab_size: int) -> Iterator[Ids]:
    """The ids of a .bin file in pieces, (<= 4 MB / size of an id,). DataError as for `verify_ids`, at the end.

    They are read, not mapped: a failing disk then is an error, while a map would end the process.
    """
    path, dtype, digest, largest = folder / shard.file, dtype_for(vocab_size), hashlib.sha256(), 0
    with _open_ids(path, shard, vocab_size) as file:
        while piece := file.read(_BUFFER_BYTES):
            digest.update(piece)
            ids = np.frombuffer(piece, dtype, len(piece) // dtype.itemsize)
            largest = max(largest, int(ids.max(initial=0)))
            yield ids
    check_sha256(path, digest.hexdigest(), shard.sha256)
    if largest >= vocab_size:
        raise damaged(path, f"it has the id {largest}, and the vocabulary ends at {vocab_size - 1}")


@contextmanager
def _open_ids(path: Path, shard: Shard, vocab_size: int) -> Iterator[BinaryIO]:
    """Open a .bin file behind its header."""
    with open_sized(path, _HEADER.size + shard.tokens * dtype_for(vocab_size).itemsize) as file:
        if file.read(_HEADER.size) != shard.header(vocab_size):
            raise damaged(path, "the header does not match manifest.json")
        yield file
