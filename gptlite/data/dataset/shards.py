"""Shards: the files of token ids of a prepared data set.

    train-00000.bin   16 bytes of header, then ids, little endian
                      header: magic "GPTLITE\\0", version u32, dtype code u32 (1 = uint16, 2 = uint32)

A document may continue in the next shard. The manifest of the folder has the size and sha256 of each whole file.
"""

from __future__ import annotations

import mmap
import struct
from typing import Any

import numpy as np

from gptlite.storage.files import storage_errors
from gptlite.storage.sealed import SealedFolder
from gptlite.tokenizers.folder import Ids

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
