"""The fingerprint of a prepared data set, the end of its folder's name: a hash over all that decides its content."""

from __future__ import annotations

import codecs
import contextlib
import hashlib
import json
import os
import re
import time
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gptlite.config.schema import DataSection, TokenizerSection
from gptlite.data.sources.charset import HEAD_BYTES, is_binary, is_wide
from gptlite.data.sources.compression import open_plain, unreadable
from gptlite.data.sources.documents import Reading
from gptlite.data.sources.sources import Source, open_source
from gptlite.errors import RunError, UserError, located
from gptlite.storage import files, locks
from gptlite.storage.json_files import SEALED_VERSION, check_version, dump_sealed, read_sealed
from gptlite.tokenizers.base import fingerprint_inputs

CACHE_FILE = ".source-hashes.json"
_RECIPE_VERSION = 1  # to be raised when equal text and keys give other files; the names of all folders change then
_SHORT = 12  # hex digits of the fingerprint in the folder's name
_MAX_NAME = 40
_BINARY = "binary"  # in place of the digest of a file that is no text

# A file system may keep times in steps of up to two seconds, so a file that was written to more recently than that
# could change again and look the same.
_SETTLED_NS = 2_000_000_000


@dataclass(frozen=True, eq=False)
class FingerprintedSources:
    """Opened sources, their content hashes, and the fingerprint of the data set that is made from them.

    The location of the text does not change the fingerprint; the names of its files do.
    """

    sources: tuple[Source, ...]
    sha256s: tuple[str, ...]
    fingerprint: str

    @property
    def short(self) -> str:
        """The part of the fingerprint that is in the folder's name."""
        return self.fingerprint[:_SHORT]

    def folder_name(self, name: str | None = None) -> str:
        """`<name>-<fingerprint>`; without a name, that of the first source."""
        more = sum(not source.is_for_validation for source in self.sources) - 1
        and_more = f"-and-{more}-more" if more and name is None else ""
        return f"{clean_name(name or plain_name(self.sources[0])) or 'data'}{and_more}-{self.short}"


def plain_name(source: Source) -> str:
    """Return what people call a text: the name of its file without the ending, or of its folder."""
    return Path(source.name).stem if source.is_one_file else Path(source.name).parts[0]


def clean_name(name: str) -> str:
    """A name that every file system and shell takes; empty where nothing of it is left."""
    return re.sub(r"[^\w-]+", "-", unicodedata.normalize("NFC", name)).strip("-_")[:_MAX_NAME]


def fingerprint_sources(data: DataSection, tokenizer: TokenizerSection, cache: HashCache) -> FingerprintedSources:
    """Open and hash the sources; the hash of a data set that is not on this disk is known. As `open_source`."""
    sources = tuple(_hashed(source, cache) for source in open_sources(data))
    sha256s = tuple(map(_combined_sha256, sources))
    inputs: dict[str, Any] = {
        "format_version": _RECIPE_VERSION,
        "sources": [_source_inputs(source, sha256) for source, sha256 in zip(sources, sha256s, strict=True)],
        "encoding": codecs.lookup(data.encoding).name,
        "normalize": data.normalize,
        "unicode": unicodedata.unidata_version if data.normalize == "nfc" else None,
        "val_fraction": data.val_fraction,
        "val_max_bytes": data.val_max_bytes,
        "tokenizer": fingerprint_inputs(tokenizer),
    }
    if data.deduplicate:  # otherwise left out: so the names of older folders stay
        inputs["deduplicate"] = True
    if data.val_sources:  # older folders may have the same documents in both parts: they are not used again
        inputs["in_both"] = "validation"
    fingerprint = hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()
    return FingerprintedSources(sources, sha256s, fingerprint)


def open_sources(data: DataSection) -> tuple[Source, ...]:
    """Open data.source, then data.val_source. DataError as `open_source`."""
    reading, exclude = Reading.of(data), (data.folder,)
    sources = [open_source(spec, reading, exclude=exclude) for spec in data.sources]
    for spec in data.val_sources:
        with located("data.val_source", at="data.source"):
            found = open_source(spec, reading, exclude=exclude)
        sources.append(replace(found, is_for_validation=True))
    return tuple(sources)


def _source_inputs(source: Source, sha256: str) -> list[Any]:
    # left out where it is empty: so the names of older folders stay
    more = {**source.reading.more_than_text, **({"part": "validation"} if source.is_for_validation else {})}
    return [source.name, source.python, sha256, *([more] if more else [])]


def compute_fingerprint(data: DataSection, tokenizer: TokenizerSection) -> str:
    """The fingerprint of this text and these keys, prepared or not. DataError if the text is missing."""
    return fingerprint_sources(data, tokenizer, HashCache(data.folder)).fingerprint


def _hashed(source: Source, cache: HashCache) -> Source:
    """The source with the sha256 of each of its files that has text and is on this disk."""
    if not source.is_one_file:
        hash_file = cache.sha256 if is_wide(source.reading.encoding) else cache.text_sha256
        found = ((path, hash_file(path)) for path in source.files)
        return replace(source, sha256s={path: sha256 for path, sha256 in found if sha256 is not None})
    (path,) = source.files
    if source.card is not None and not path.exists():
        return source  # it is not fetched yet
    sha256 = cache.sha256(path)
    if source.card is not None:
        source.card.check_sha256(path, sha256)
    return replace(source, sha256s={path: sha256})


def _combined_sha256(source: Source) -> str:
    """sha256 of a single file; for a folder or glob, that of its text files' hashes, one per line, in their order."""
    if source.is_one_file:
        return source.card.sha256 if source.card is not None else source.sha256s[source.files[0]]
    return hashlib.sha256("\n".join(source.sha256s.values()).encode()).hexdigest()


class HashCache:
    """sha256 of source files, so that unchanged text is read once: kept in one small JSON file in `folder`.

    A file is known by path, size, mtime, ctime and inode. The cache only saves time: if it is missing, damaged or
    without a seal, files are read again.
    """

    def __init__(self, folder: Path, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._path = folder / CACHE_FILE
        self._now_ns = now_ns
        self._entries: dict[str, str] = self._load()  # "size mtime ctime inode digest" by kind and path
        self._changed = False

    def sha256(self, path: Path) -> str:
        """Hex digest of a file. DataError when it cannot be read."""
        digest = self._look_up(path, "any", _hash_file)
        assert digest is not None, "every file has one"
        return digest

    def text_sha256(self, path: Path) -> str | None:
        """The same, but None for a binary file, of which only the beginning is read."""
        # Before, entries named "text" were those of some files that count as binary now, and the other way round.
        return self._look_up(path, "plain text", _hash_text_file)

    def _look_up(self, path: Path, kind: str, hash_file: Callable[[Path], str | None]) -> str | None:
        key = f"{kind}:{path}"
        try:
            before = _signature(path)
            known = self._entries.get(key)
            if known is not None and known.startswith(before):
                return None if known == before + _BINARY else known.removeprefix(before)
            digest = hash_file(path)
            settled = _signature(path) == before and self._now_ns() - _last_change(path) > _SETTLED_NS
        except OSError as error:
            raise unreadable(path, error) from error
        if settled:
            self._entries[key] = before + (digest or _BINARY)
            self._changed = True
        return digest

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
            files.replace(self._path, dump_sealed({"files": kept}))
        self._changed = False

    def _load(self) -> dict[str, str]:
        try:
            saved = read_sealed(self._path)
            check_version(self._path, saved, SEALED_VERSION)
            return {key: entry for key, entry in saved["files"].items() if isinstance(entry, str)}
        except (UserError, KeyError, AttributeError, RecursionError):
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


def _hash_text_file(path: Path) -> str | None:
    with open_plain(path) as file:
        head = file.read(HEAD_BYTES)
    return None if is_binary(head, "utf-8") else _hash_file(path)
