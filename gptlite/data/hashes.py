"""Content hashes of source files, remembered so that unchanged text is read once."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gptlite import files
from gptlite.data.charset import HEAD_BYTES, is_binary
from gptlite.errors import DataError

FILE_NAME = ".source-hashes.json"
FORMAT_VERSION = 1

# A file system may keep times in steps of up to two seconds, so a file that was written to that recently could change
# again and look the same.
_SETTLED_NS = 2_000_000_000


class HashCache:
    """sha256 of files, kept in one small JSON file by path, size, mtime, ctime and inode.

    It only saves time: without it, or with a damaged one, files are read again.
    """

    def __init__(self, folder: Path, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._path = folder / FILE_NAME
        self._now_ns = now_ns
        self._entries: dict[str, list[Any]] = self._load()
        self._changed = False

    def sha256(self, path: Path) -> str:
        """Hex digest of a file; DataError when it cannot be read."""
        digest = self._remembered(path, "any", _digest)
        assert digest is not None, "every file has one"
        return digest

    def text_sha256(self, path: Path) -> str | None:
        """The same, but None for a binary file, of which only the head is read."""
        return self._remembered(path, "text", _text_digest)

    def _remembered(self, path: Path, kind: str, digest_of: Callable[[Path], str | None]) -> str | None:
        key = f"{kind}:{path}"
        try:
            before = _signature(path)
            known = self._entries.get(key)
            if known is not None and known[:-1] == before:
                return None if known[-1] is None else str(known[-1])
            digest = digest_of(path)
            settled = _signature(path) == before and self._now_ns() - max(before[1], before[2]) > _SETTLED_NS
        except OSError as error:
            raise DataError(
                f"{path}: reading = {error.strerror}: a readable file is needed; check the file and its permissions"
            ) from error
        if settled:
            self._entries[key] = [*before, digest]
            self._changed = True
        return digest

    def save(self) -> None:
        """Write what was learned; a StorageError when the folder cannot be written to."""
        if not self._changed:
            return
        files.make_dirs(self._path.parent)
        kept = {key: entry for key, entry in sorted(self._entries.items()) if os.path.exists(key.partition(":")[2])}
        files.replace(self._path, json.dumps({"format_version": FORMAT_VERSION, "files": kept}).encode())
        self._changed = False

    def _load(self) -> dict[str, list[Any]]:
        try:
            saved = json.loads(self._path.read_bytes())
            entries = saved["files"] if saved["format_version"] == FORMAT_VERSION else {}
            return {str(key): list(entry) for key, entry in entries.items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}  # none yet, or damaged: nothing is lost but time


def _signature(path: Path) -> list[int]:
    stat = path.stat()
    return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _text_digest(path: Path) -> str | None:
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    return None if is_binary(head, "utf-8") else _digest(path)
