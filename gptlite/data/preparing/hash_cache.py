"""The sha256 of source files, kept so that unchanged text is read once."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path

from gptlite.data.sources.charset import HEAD_BYTES
from gptlite.data.sources.documents import Reading, is_skipped
from gptlite.data.sources.file_formats import open_plain, unreadable
from gptlite.errors import RunError, UserError
from gptlite.storage import files, locks
from gptlite.storage.sealed_json import read_sealed, write_sealed

CACHE_FILE = ".source-hashes.json"
_SKIPPED = "skipped"  # in place of the digest of a file that is not read as text

# A file system may keep times in steps of up to two seconds, so a file that was written to more recently than that
# could change again and look the same.
_SETTLED_NS = 2_000_000_000


class HashCache:
    """sha256 of source files, in one small JSON file in `folder`.

    A file is known by path, size, mtime, ctime and inode. The cache only saves time: if it is missing or damaged, files
    are read again.
    """

    def __init__(self, folder: Path, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._path = folder / CACHE_FILE
        self._now_ns = now_ns
        self._entries: dict[str, str] = self._load()  # "size mtime ctime inode digest" by encoding and path
        self._changed = False

    def sha256(self, path: Path, reading: Reading | None = None) -> str | None:
        """Return the hex digest of a file. DataError when it cannot be read.

        reading: how it is read as one of a folder's; None is returned where `read_documents` then skips it.
        """
        key = f"{'any' if reading is None else reading.encoding}:{path}"
        try:
            before = _signature(path)
            known = self._entries.get(key, "")
            if known.startswith(before):
                digest = known.removeprefix(before)
                return None if digest == _SKIPPED else digest
            found = _hash_file(path) if reading is None or not _is_skipped(path, reading) else None
            settled = _signature(path) == before and self._now_ns() - _last_change(path) > _SETTLED_NS
        except OSError as error:
            raise unreadable(path, error) from error
        if settled:
            self._entries[key] = before + (found or _SKIPPED)
            self._changed = True
        return found

    def save(self) -> None:
        """Write new entries to disk. StorageError when the folder cannot be written to."""
        if not self._changed:
            return
        files.make_dirs(self._path.parent)
        kept = {key: entry for key, entry in self._entries.items() if os.path.exists(key.partition(":")[2])}
        with (
            contextlib.suppress(RunError),  # another process is writing its own; both only save time
            locks.lock(self._path.with_name(f"{CACHE_FILE}.lock"), "gptlite prepare"),
        ):
            write_sealed(self._path, {"files": kept})
        self._changed = False

    def _load(self) -> dict[str, str]:
        try:
            return {key: entry for key, entry in read_sealed(self._path)["files"].items() if isinstance(entry, str)}
        except (UserError, KeyError, AttributeError):
            return {}  # there is none yet, or it is damaged


def _signature(path: Path) -> str:
    stat = path.stat()
    return f"{stat.st_size} {stat.st_mtime_ns} {stat.st_ctime_ns} {stat.st_ino} "


def _last_change(path: Path) -> int:
    stat = path.stat()
    return max(stat.st_mtime_ns, stat.st_ctime_ns)


def _hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _is_skipped(path: Path, reading: Reading) -> bool:
    with open_plain(path) as file:
        return is_skipped(file.read(HEAD_BYTES), reading)
