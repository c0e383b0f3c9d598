"""A tokenizer on disk: gptlite_tokenizer.json describes it, with a checksum over everything that decides ids."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gptlite.errors import DataError, StorageError
from gptlite.json_files import check_version

END_OF_TEXT = "<|endoftext|>"
FORMAT_VERSION = 1
META_FILE = "gptlite_tokenizer.json"

# Ids do not depend on these.
_NOT_IN_FINGERPRINT = ("requested_vocab_size", "fingerprint")


def describe(kind: str, vocab_size: int, **more: Any) -> dict[str, Any]:
    """The content of META_FILE, its fingerprint included."""
    meta = {"format_version": FORMAT_VERSION, "kind": kind, "vocab_size": vocab_size, "eot_id": vocab_size - 1, **more}
    return {**meta, "fingerprint": tokenizer_fingerprint(meta)}


def tokenizer_fingerprint(meta: Mapping[str, Any]) -> str:
    """Hex sha256 over those entries of META_FILE that decide ids."""
    decides = {key: value for key, value in meta.items() if key not in _NOT_IN_FINGERPRINT}
    return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()


def dump_tokenizer_json(value: Any) -> bytes:
    """JSON in ASCII, so that no editor can mistake its encoding, with one entry per line."""
    return (json.dumps(value, indent=1) + "\n").encode("ascii")


def read_bytes(path: Path) -> bytes:
    """Read a file of a tokenizer folder. DataError when it is missing, StorageError when it cannot be read."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise DataError(
            "the tokenizer needs this file, and it is missing. Restore it from a copy.", str(path)
        ) from error
    except OSError as error:
        raise StorageError(f"the file cannot be read ({error.strerror}). Check its permissions.", str(path)) from error


def read_meta(folder: Path) -> dict[str, Any]:
    """Read META_FILE of a folder and check its version and fingerprint. DataError when they are wrong."""
    path = folder / META_FILE
    try:
        meta = dict(json.loads(read_bytes(path)))
        written = meta["fingerprint"]
    except (ValueError, KeyError, TypeError) as error:
        raise DataError("the file does not describe a tokenizer. Restore it from a copy.", str(path)) from error
    check_version(path, meta, FORMAT_VERSION, error=DataError)
    if (found := tokenizer_fingerprint(meta)) != written:
        raise DataError(
            f"the file was changed: its fingerprint is {written}, that of its content {found}. Restore it from a copy.",
            str(path),
        )
    return meta


def checked_ids(ids: Iterable[int], vocab_size: int) -> npt.NDArray[np.int64]:
    """The ids as an array, (n,). DataError for one outside 0 .. vocab_size - 1."""
    array = np.asarray(ids, np.int64) if isinstance(ids, np.ndarray) else np.fromiter(ids, np.int64)
    outside = (array < 0) | (array >= vocab_size)
    if outside.any():
        raise DataError(
            f"{array[outside][0]} is not an id of this tokenizer, which has 0 to {vocab_size - 1}. "
            "Use the tokenizer that the ids came from."
        )
    return array
