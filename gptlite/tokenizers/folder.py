"""A tokenizer on disk: gptlite_tokenizer.json describes it, with a checksum over everything that decides ids."""

from __future__ import annotations

import errno
import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from gptlite.errors import DataError
from gptlite.storage.files import read_own, storage_errors
from gptlite.storage.json_files import check_version

Ids: TypeAlias = npt.NDArray[np.unsignedinteger[Any]]

END_OF_TEXT = "<|endoftext|>"
FORMAT_VERSION = 1
META_FILE = "gptlite_tokenizer.json"

_MAX_META_BYTES = 16 << 20  # all characters of Unicode take 14 MB

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


def read_bytes(path: Path, limit: int) -> bytes:
    """Read a file of a tokenizer folder, at most `limit` bytes.

    DataError when it is missing or larger, StorageError when it cannot be read or is no plain file.
    """
    try:
        return read_own(path, limit)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise DataError(
            "the tokenizer needs this file, and it is missing. Restore it from a copy.", str(path)
        ) from error
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise not_a_tokenizer(path, f"it has more than {limit:,} bytes") from None
        with storage_errors(path, "read"):
            raise


def not_a_tokenizer(path: Path, reason: str) -> DataError:
    """The error for a file of a tokenizer folder that gptlite did not write."""
    return DataError(f"the file does not describe a tokenizer: {reason}. Restore it from a copy.", str(path))


def read_meta(folder: Path) -> dict[str, Any]:
    """Read META_FILE of a folder and check its version and fingerprint. DataError when they are wrong."""
    path = folder / META_FILE
    try:
        meta: dict[str, Any] = json.loads(read_bytes(path, _MAX_META_BYTES))
        written = str(meta["fingerprint"])[:64]
        found = tokenizer_fingerprint(meta)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise not_a_tokenizer(path, "it is no JSON object with a fingerprint") from error
    check_version(path, meta, FORMAT_VERSION, error=DataError)
    if found != written:
        raise DataError(
            f"the file was changed: its fingerprint is {written}, that of its content {found}. Restore it from a copy.",
            str(path),
        )
    return meta


def check_sizes(path: Path, meta: Mapping[str, Any], n_tokens: int, most: int) -> None:
    """DataError unless the sizes in META_FILE are those of a vocabulary of `n_tokens` to `most` ids and end-of-text."""
    size = meta.get("vocab_size")
    if type(size) is not int or not n_tokens < size <= most + 1:
        raise not_a_tokenizer(path, f"vocab_size is {str(size)[:20]} for {n_tokens} tokens")
    if meta.get("eot_id") != size - 1:
        raise not_a_tokenizer(path, f"eot_id is {str(meta.get('eot_id'))[:20]} and not the last id, {size - 1}")


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
