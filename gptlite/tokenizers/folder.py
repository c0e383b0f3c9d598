"""A tokenizer on disk: gptlite_tokenizer.json says what it is and carries a checksum over all that decides ids."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gptlite.errors import DataError, StorageError

END_OF_TEXT = "<|endoftext|>"
FORMAT_VERSION = 1
META_FILE = "gptlite_tokenizer.json"

# They say how the tokenizer came about or are the checksum itself: ids do not depend on them.
_NOT_IN_FINGERPRINT = ("requested_vocab_size", "fingerprint")


def describe(kind: str, vocab_size: int, **more: Any) -> dict[str, Any]:
    """What META_FILE holds, its fingerprint included."""
    meta = {"format_version": FORMAT_VERSION, "kind": kind, "vocab_size": vocab_size, "eot_id": vocab_size - 1, **more}
    return {**meta, "fingerprint": fingerprint_of(meta)}


def fingerprint_of(meta: Mapping[str, Any]) -> str:
    """Hex sha256 over those entries of META_FILE that decide ids."""
    decides = {key: value for key, value in meta.items() if key not in _NOT_IN_FINGERPRINT}
    return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()


def as_json(value: Any) -> bytes:
    """ASCII only, so that no editor or file system can mistake its encoding; one entry a line."""
    return (json.dumps(value, indent=1) + "\n").encode("ascii")


def read_bytes(path: Path) -> bytes:
    """A file of a tokenizer folder: DataError if it is not there, StorageError if it cannot be read."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise DataError(f"{path}: no such file: a tokenizer needs it; give a folder that holds it") from error
    except OSError as error:
        raise StorageError(
            f"{path}: read = {error.strerror}: it must be readable; check the path and rights"
        ) from error


def read_meta(folder: Path) -> dict[str, Any]:
    """META_FILE of a folder, its version and fingerprint checked. DataError otherwise."""
    path = folder / META_FILE
    try:
        meta = json.loads(read_bytes(path))
        version, written = meta["format_version"], meta["fingerprint"]
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: not a tokenizer description: it is damaged; restore it from a copy") from error
    if version != FORMAT_VERSION:
        raise DataError(
            f"{path}: format_version = {version}: this gptlite reads {FORMAT_VERSION}; use the one that wrote it"
        )
    if (found := fingerprint_of(meta)) != written:
        raise DataError(f"{path}: fingerprint = {written}: its content has {found}; restore it from a copy")
    return dict(meta)


def checked_ids(ids: Iterable[int], vocab_size: int) -> npt.NDArray[np.int64]:
    """The ids as an array, (n,). DataError for one outside 0 .. vocab_size - 1."""
    array = np.asarray(ids, np.int64) if isinstance(ids, np.ndarray) else np.fromiter(ids, np.int64)
    outside = (array < 0) | (array >= vocab_size)
    if outside.any():
        wrong = array[outside][0]
        raise DataError(f"ids: token id = {wrong}: the tokenizer has 0 to {vocab_size - 1}; use the one they came from")
    return array
