"""Files of a prepared data set: opened without following links, and checked against the size and sha256 they had."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from gptlite.errors import DataError
from gptlite.storage.files import open_own, storage_errors


@contextmanager
def open_sized(path: Path, size: int) -> Iterator[BinaryIO]:
    """Open a file of this size. DataError if it is missing or has another size, StorageError if it is unreadable."""
    with storage_errors(path, "read"):
        try:
            opened = open_own(path)
        except FileNotFoundError:
            raise damaged(path, "the file is missing") from None
        with opened as file:
            if (found := os.fstat(file.fileno()).st_size) != size:
                raise damaged(path, f"the file has {found} bytes instead of {size}")
            yield file


def read_checked(path: Path, size: int, sha256: str) -> bytes:
    """The content of a file. Errors as for `open_sized`, and DataError when its sha256 is another."""
    with open_sized(path, size) as file:
        data = file.read(size)
    check_sha256(path, hashlib.sha256(data).hexdigest(), sha256)
    return data


def check_sha256(path: Path, found: str, expected: str) -> None:
    """DataError, naming both, when they differ."""
    if found != expected:
        raise damaged(path, f"its sha256 is {found[:12]}, in manifest.json it is {expected[:12]}")


def damaged(path: Path, problem: str) -> DataError:
    """The error for a file of a prepared data set that is not what was written."""
    return DataError(
        f"the prepared data is damaged: {problem}. Remove its folder and prepare the text again.", str(path)
    )
