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
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from gptlite.config.schema import DataSection, TokenizerSection
from gptlite.data.dataset.prepared import ADVICE, Prepared
from gptlite.data.sources.documents import fingerprint_fields, is_text_file
from gptlite.data.sources.file_formats import unreadable
from gptlite.data.sources.sources import Source, open_source
from gptlite.errors import DataError, UserError, located
from gptlite.storage import files
from gptlite.storage.sealed import MANIFEST, Check, SealedFolder, check_folder, read_sealed, write_sealed
from gptlite.tokenizers.base import fingerprint_inputs

_RECIPE_VERSION = 3  # to be raised when equal text and keys give other files; the names of all folders change then
_SHORT = 12  # hex digits of the fingerprint in the folder's name
_MAX_NAME = 40

CACHE_FILE = ".source-hashes.json"
# A file system may keep times in steps of up to two seconds, so a file that was written to more recently than that
# could change again and look the same.
_SETTLED_NS = 2_000_000_000


class HashCache:
    """sha256 of source files, in one small JSON file in `folder`, so that unchanged text is read once.

    A file is known by path, size, mtime, ctime and inode. The cache only saves time: if it is missing or damaged, files
    are read again.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / CACHE_FILE
        self._saved: dict[str, Any] = {}  # [signature, digest] by how a file is read and its path
        with contextlib.suppress(UserError, TypeError, ValueError):  # there is none yet, or it is damaged
            self._saved = dict(read_sealed(self._path).get("files", {}))
        self._entries = dict(self._saved)

    def sha256(self, path: Path, reading: DataSection | None = None) -> str | None:
        """Return the hex digest of a file. DataError when it cannot be read.

        reading: how it is read as one of a folder's; None is returned where `read_documents` then skips it.
        """
        key = f"{'any' if reading is None else f'{reading.encoding}, {reading.documents}'}:{path}"
        try:
            stat = path.stat()
            before = f"{stat.st_size} {stat.st_mtime_ns} {stat.st_ctime_ns} {stat.st_ino}"
            known, digest = self._entries.get(key, ("", ""))
            if known == before:
                return str(digest)
            if reading is not None and not is_text_file(path, reading):
                return None  # not kept, since another version may read it
            digest = _hash_file(path)
            after = path.stat()
        except OSError as error:
            raise unreadable(path, error) from error
        if time.time_ns() - max(after.st_mtime_ns, after.st_ctime_ns) > _SETTLED_NS:
            self._entries[key] = [before, digest]
        return digest

    def save(self) -> None:
        """Write new entries to disk. StorageError when the folder cannot be written to.

        Of two processes that write at a time, the entries of the last one stay.
        """
        if self._entries == self._saved:
            return
        files.make_dirs(self._path.parent)
        self._saved = {key: entry for key, entry in self._entries.items() if os.path.exists(key.partition(":")[2])}
        write_sealed(self._path, {"files": self._saved})


@dataclass(frozen=True, eq=False)
class FingerprintedSources:
    """Opened sources with their content hashes, and the fingerprint of the data set that is made from them.

    The location of the text does not change the fingerprint; the names of its files do.
    """

    sources: tuple[Source, ...]
    fingerprint: str

    @property
    def short(self) -> str:
        """The part of the fingerprint that is in the folder's name."""
        return self.fingerprint[:_SHORT]

    def folder_name(self, name: str | None = None) -> str:
        """Return `<name>-<fingerprint>`; without a name, that of the first source."""
        more = sum(not source.is_for_validation for source in self.sources) - 1
        and_more = f"-and-{more}-more" if more and name is None else ""
        return f"{clean_name(name or plain_name(self.sources[0])) or 'data'}{and_more}-{self.short}"


def plain_name(source: Source) -> str:
    """Return what people call a text: the name of its file without the ending, or of its folder."""
    return Path(source.name).stem if source.is_one_file else Path(source.name).parts[0]


def clean_name(name: str) -> str:
    """Return a name that every file system and shell takes; empty where nothing of it is left."""
    return re.sub(r"[^\w-]+", "-", unicodedata.normalize("NFC", name)).strip("-_")[:_MAX_NAME]


def open_sources(data: DataSection) -> tuple[Source, ...]:
    """Open data.source, then data.val_source. DataError as `open_source`."""
    sources = [open_source(spec, data) for spec in data.sources]
    for spec in data.val_sources:
        with located("data.val_source", at="data.source"):
            found = open_source(spec, data)
        sources.append(replace(found, is_for_validation=True))
    return tuple(sources)


def fingerprint_sources(data: DataSection, tokenizer: TokenizerSection, cache: HashCache) -> FingerprintedSources:
    """Open and hash the sources; the hash of a data set that is not on this disk is known. As `open_source`."""
    sources = tuple(_hashed(source, cache) for source in open_sources(data))
    inputs: dict[str, Any] = {
        "version": _RECIPE_VERSION,
        "sources": [
            [each.name, each.python, each.sha256, each.is_for_validation, fingerprint_fields(each.reading)]
            for each in sources
        ],
        "encoding": codecs.lookup(data.encoding).name,
        "normalize": data.normalize,
        "unicode": unicodedata.unidata_version if data.normalize == "nfc" else None,
        "val_fraction": data.val_fraction,
        "val_max_bytes": data.val_max_bytes,
        "deduplicate": data.deduplicate,
        "tokenizer": fingerprint_inputs(tokenizer),
    }
    fingerprint = hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()
    return FingerprintedSources(sources, fingerprint)


def compute_fingerprint(data: DataSection, tokenizer: TokenizerSection) -> str:
    """Return the fingerprint of this text and these keys, prepared or not. DataError if the text is missing."""
    return fingerprint_sources(data, tokenizer, HashCache(data.folder)).fingerprint


def _hashed(source: Source, cache: HashCache) -> Source:
    """Return the source with its sha256: that of a single file; of several, that of their hashes, one per line."""
    if source.card is not None and not source.files[0].exists():
        return replace(source, sha256=source.card.sha256)  # it is not fetched yet
    reading = None if source.is_one_file else source.reading
    sha256s = [digest for path in source.files if (digest := cache.sha256(path, reading))]
    if source.card is not None:
        source.card.check_sha256(source.files[0], sha256s[0])
    joined = hashlib.sha256("\n".join(sha256s).encode()).hexdigest()
    return replace(source, sha256=sha256s[0] if source.is_one_file else joined)


def _find_folder(sources: FingerprintedSources, parent: Path) -> Path | None:
    """Return the folder in `parent` that is named after these sources and has a manifest."""
    return next((path.parent for path in sorted(parent.glob(f"[!.]*-{sources.short}/{MANIFEST}"))), None)


def find_finished(sources: FingerprintedSources, parent: Path) -> Prepared | None:
    """Open the folder in `parent` that was made from these sources. DataError if only its name says so."""
    if (found := _find_folder(sources, parent)) is None:
        return None
    prepared = Prepared(found)
    if prepared.manifest.fingerprint != sources.fingerprint:
        raise DataError(
            f"this folder is named after the text {sources.short}, but holds the text "
            f"{prepared.manifest.fingerprint[:_SHORT]}. Rename or remove it, and prepare the text again.",
            str(found),
        )
    return prepared


def check_prepared(data: DataSection, tokenizer: TokenizerSection) -> tuple[Path, Iterator[Check]]:
    """Return the prepared folder of this text and these keys, and a check of each of its files.

    The files are read as they are asked for, and nothing is written. DataError if the text is not prepared.
    """
    sources = fingerprint_sources(data, tokenizer, HashCache(data.folder))
    if (found := _find_folder(sources, data.folder)) is None:
        raise DataError(
            f"the text is not prepared with these keys: there is no finished folder *-{sources.short}. "
            "Prepare it first.",
            str(data.folder),
        )
    return found, check_folder(found, partial(SealedFolder.open, found, ADVICE, sizes=False))


def _hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
