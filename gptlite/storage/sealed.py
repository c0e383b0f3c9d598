"""Sealed folders: checkpoints and prepared texts. Their manifest has the size and sha256 of every file.

The manifest is a sealed JSON file and is written last: a folder without it is unfinished.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from gptlite.errors import Damaged, StorageError
from gptlite.storage import files
from gptlite.storage.sealed_json import dump_sealed, parse_json, read_sealed, seal

MANIFEST = "MANIFEST.json"
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
# Parts of a path below the folder, none of which is hidden or leads out of it.
RelativeName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*$")]


@dataclass(frozen=True)
class FileRecord:
    """Size in bytes and sha256 of a file."""

    size: Annotated[int, Field(ge=0, le=1 << 60)]
    sha256: Sha256


_FILES = TypeAdapter(dict[RelativeName, FileRecord], config=ConfigDict(extra="forbid", strict=True))


@dataclass(frozen=True)
class SealedFolder:
    """A folder whose manifest matched and whose files had their sizes when it was opened.

    fields: the manifest without `files` and the format version. files: by name; "tokenizer/vocab.json" is in a
    subfolder. advice: a sentence that ends each error.
    """

    path: Path
    fields: Mapping[str, Any]
    files: Mapping[str, FileRecord]
    advice: str

    @classmethod
    def open(cls, path: Path, advice: str, *, sizes: bool = True) -> Self:
        """Read the manifest. Raise Damaged, also where a file cannot be read. sizes: check that of each file."""
        where = path / MANIFEST
        try:
            fields = read_sealed(where, advice=advice)
            records = _FILES.validate_json(json.dumps(fields.pop("files", None)))
        except StorageError as error:  # such as a bad sector: another folder may be readable
            raise Damaged(error.problems) from error
        except ValidationError:
            raise Damaged(f"the size and sha256 of each file are expected. {advice}", str(where)) from None
        found = cls(path, fields, records, advice)
        for name in found.files if sizes else ():
            with found.open_file(name):
                pass
        return found

    @contextmanager
    def open_file(self, name: str) -> Iterator[BufferedReader]:
        """Open a file of the right size. Raise Damaged where it is missing or unreadable, or has another size."""
        path, size = self.path / name, self.files[name].size
        try:
            file = files.open_own(path)
        except FileNotFoundError:
            raise self.damaged(name, "this file is missing") from None
        except OSError as error:
            raise self.damaged(name, f"this file cannot be read: {error.strerror}") from error
        with file:
            if (found := os.fstat(file.fileno()).st_size) != size:
                raise self.damaged(name, f"the file has {found} bytes, and {MANIFEST} says {size}")
            yield file

    def read(self, name: str) -> bytes:
        """Return the content of a file after checking it. Raise Damaged."""
        with self.open_file(name) as file:
            data = self._read(name, file, self.files[name].size)
        self._compare(name, hashlib.sha256(data).hexdigest())
        return data

    def read_json(self, name: str) -> dict[str, Any]:
        """Return the object in a JSON file after checking it. Raise Damaged."""
        return parse_json(self.read(name), self.path / name)

    def check(self, name: str) -> None:
        """Read a file of any size. Raise Damaged where its content is not what was written."""
        digest = hashlib.sha256()
        with self.open_file(name) as file:
            while piece := self._read(name, file, 1 << 20):
                digest.update(piece)
        self._compare(name, digest.hexdigest())

    @property
    def digest(self) -> str:
        """A digest of all that the folder holds."""
        return seal({**self.fields, "files": {name: vars(record) for name, record in self.files.items()}})

    def damaged(self, name: str, problem: str) -> Damaged:
        """Return the error for a file. problem: without the stop at its end."""
        return Damaged(f"{problem}. {self.advice}", str(self.path / name))

    def _read(self, name: str, file: BufferedReader, most: int) -> bytes:
        try:
            return file.read(most)
        except OSError as error:  # such as a bad sector: another folder may be readable
            raise self.damaged(name, f"this file cannot be read: {error.strerror}") from error

    def _compare(self, name: str, found: str) -> None:
        if found != (written := self.files[name].sha256):
            raise self.damaged(
                name, f"this file changed after it was written: its sha256 was {written[:12]} and is now {found[:12]}"
            )


def write_manifest(folder: Path, fields: Mapping[str, Any], written: Mapping[str, FileRecord]) -> None:
    """Seal a folder whose files are written and synced; `written` has all of them by name."""
    records = {name: vars(written[name]) for name in sorted(written)}
    files.write_new(folder / MANIFEST, dump_sealed({**fields, "files": records}))


def write_file(folder: Path, name: str, data: files.Data | Iterable[files.Data]) -> FileRecord:
    """Write a file of an unfinished folder durably, and return what its manifest says of it."""
    return FileRecord(*files.write_new(folder / name, data))
