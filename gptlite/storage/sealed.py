"""Sealed JSON files, whose fields have a `format_version` and a sha256 of all, and sealed folders.

Checkpoints and prepared texts are sealed folders. Their manifest, a sealed file, has the size and sha256 of every other
file, and is written last: a folder without it is unfinished.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import Any, NamedTuple, Self

from gptlite.errors import Damaged, RunError, StorageError, UserError
from gptlite.storage import files

FORMAT_VERSION = 3  # of everything that gptlite writes, raised when any of it changes
MANIFEST = "MANIFEST.json"
# Parts of a path below the folder, none of which is hidden or leads out of it.
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*")


def dump_json(fields: Mapping[str, Any]) -> bytes:
    """Return the bytes of a JSON file. Equal fields give equal bytes. Raise ValueError for non-finite numbers."""
    return (json.dumps(fields, indent=2, sort_keys=True, allow_nan=False) + "\n").encode()


def seal(fields: Mapping[str, Any]) -> str:
    """Return the sha256 of the fields as they are written."""
    return hashlib.sha256(dump_json(fields)).hexdigest()


def dump_sealed(fields: Mapping[str, Any]) -> bytes:
    """Return the bytes of a sealed file: the fields, the format version, and a `sha256` of these."""
    versioned = {**fields, "format_version": FORMAT_VERSION}
    return dump_json({**versioned, "sha256": seal(versioned)})


def write_sealed(path: Path, fields: Mapping[str, Any]) -> None:
    """Write or replace a sealed file, atomically and durably."""
    files.replace(path, dump_sealed(fields))


def parse_json(data: bytes, path: Path) -> dict[str, Any]:
    """Return the object that these bytes of a file are in JSON. Raise Damaged for something else."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise Damaged("this cannot be read as a JSON object. The file is damaged.", str(path))
    return value


def read_sealed(path: Path, *, advice: str = "Restore the file.") -> dict[str, Any]:
    """Return the fields that `dump_sealed` wrote. Raise Damaged where they changed, RunError for another version.

    The seal is checked first, so that a damaged number is not mistaken for another version. advice: what to do, a
    sentence.
    """
    with files.storage_errors(path, "read"):
        try:
            data = path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            raise Damaged("this file is missing, so the folder is incomplete. Check the path.", str(path)) from None
    fields = parse_json(data, path)
    expected, version = fields.pop("sha256", None), fields.get("format_version")
    try:
        found = seal(fields)
    except (RecursionError, ValueError):  # json reads some values that it cannot write
        found = "unknown"
    if found != expected:
        changed = f"its sha256 was {str(expected)[:12]} and is now {found[:12]}"
        raise Damaged(f"this file changed after it was written: {changed}. {advice}", str(path))
    if version != FORMAT_VERSION:
        raise RunError(
            f"another version of gptlite wrote this: its format is {version}, and this one reads "
            f"{FORMAT_VERSION}. Use that version, or make it anew.",
            str(path),
        )
    del fields["format_version"]
    return fields


@dataclass(frozen=True)
class FileRecord:
    """Size in bytes and sha256 of a file."""

    size: int
    sha256: str


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
        try:
            fields = read_sealed(path / MANIFEST, advice=advice)
        except StorageError as error:  # such as a bad sector: another folder may be readable
            raise Damaged(error.problems) from error
        records = {name: FileRecord(**record) for name, record in fields.pop("files").items()}
        opened = cls(path, fields, records, advice)
        if not all(map(_NAME.fullmatch, records)):
            raise opened.damaged(MANIFEST, "it names a file outside its folder")
        for name in opened.files if sizes else ():
            with opened.open_file(name):
                pass
        return opened

    @contextlib.contextmanager
    def open_file(self, name: str) -> Iterator[BufferedReader]:
        """Open a file of the right size. Raise Damaged where it is missing or unreadable, or has another size."""
        if name not in self.files:
            raise self.damaged(name, f"{MANIFEST} does not list this file")
        try:
            with (self.path / name).open("rb") as file:
                if (size := os.fstat(file.fileno()).st_size) != (written := self.files[name].size):
                    raise self.damaged(name, f"the file has {size} bytes, and {MANIFEST} says {written}")
                yield file
        except FileNotFoundError:
            raise self.damaged(name, "this file is missing") from None
        except OSError as error:  # such as a bad sector: another folder may be readable
            raise self.damaged(name, f"this file cannot be read: {error.strerror}") from error

    def read(self, name: str) -> bytes:
        """Return the content of a file after checking it. Raise Damaged."""
        with self.open_file(name) as file:
            data = file.read(self.files[name].size)
        self._compare(name, hashlib.sha256(data).hexdigest())
        return data

    def read_json(self, name: str) -> dict[str, Any]:
        """Return the object in a JSON file after checking it. Raise Damaged."""
        return parse_json(self.read(name), self.path / name)

    def check(self, name: str) -> None:
        """Read a file of any size. Raise Damaged where its content is not what was written."""
        with self.open_file(name) as file:
            digest = hashlib.file_digest(file, "sha256")
        self._compare(name, digest.hexdigest())

    def verified(self, skip: Collection[str] = ()) -> Self:
        """Return this folder after checking all files but those to skip. Raise Damaged for the first that changed."""
        for name in sorted(self.files.keys() - set(skip)):
            self.check(name)
        return self

    @property
    def digest(self) -> str:
        """A digest of all that the folder holds."""
        return seal({**self.fields, "files": _as_json(self.files)})

    def damaged(self, name: str, problem: str) -> Damaged:
        """Return the error for a file. problem: without the stop at its end."""
        return Damaged(f"{problem}. {self.advice}", str(self.path / name))

    def _compare(self, name: str, now: str) -> None:
        if now != (written := self.files[name].sha256):
            raise self.damaged(
                name, f"this file changed after it was written: its sha256 was {written[:12]} and is now {now[:12]}"
            )


class Check(NamedTuple):
    """A file, and what is wrong with it; None where it is as it was written."""

    path: Path
    problem: str | None = None


def check_file(path: Path, read: Callable[[], object]) -> Check:
    """Return a check of the file that `read` reads: `path`, unless an error names another one."""
    try:
        read()
    except UserError as error:
        problem = error.problems[0]
        return Check(Path(problem.where or path), problem.sentence)
    return Check(path)


def check_folder(path: Path, open_folder: Callable[[], SealedFolder]) -> Iterator[Check]:
    """Yield a check of the manifest and, where it can be opened, of each file of the folder, while it is read."""
    manifest = check_file(path / MANIFEST, open_folder)
    yield manifest
    if manifest.problem is None:
        folder = open_folder()
        yield from (check_file(path / name, partial(folder.check, name)) for name in sorted(folder.files))


def _as_json(records: Mapping[str, FileRecord]) -> dict[str, Any]:
    return {name: asdict(record) for name, record in records.items()}


def write_file(folder: Path, name: str, data: files.Data | Iterable[files.Data]) -> FileRecord:
    """Write a file of an unfinished folder durably, and return what its manifest says of it."""
    files.make_dirs((folder / name).parent)
    return FileRecord(*files.write_new(folder / name, data))


def write_manifest(folder: Path, fields: Mapping[str, Any], written: Mapping[str, FileRecord]) -> None:
    """Write or replace the manifest of a folder whose files are written; `written` has all of them by name."""
    write_sealed(folder / MANIFEST, {**fields, "files": _as_json(written)})


def write_folder(
    path: Path, fields: Mapping[str, Any], contents: Iterable[tuple[str, files.Data]]
) -> dict[str, FileRecord]:
    """Write a sealed folder durably: all of it, or nothing and StorageError. It takes the place of one of its name.

    contents: the name and the content of each file, in the order in which they are written.
    """
    with files.removed_on_error(files.temp_name(path)) as temp:
        files.create_dir(temp)
        written = {name: write_file(temp, name, data) for name, data in contents}
        for below in {(temp / name).parent for name in written} - {temp}:
            files.sync_dir(below)
        write_manifest(temp, fields, written)
        files.remove_tree(path)
        files.publish(temp, path)
    return written
