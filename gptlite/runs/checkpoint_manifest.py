"""MANIFEST.json: the size and sha256 of every file of a checkpoint, and a sha256 of this list itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gptlite.errors import RunError, StorageError
from gptlite.storage.json_files import FORMAT_VERSION, check_version, dump_sealed, read_sealed

MANIFEST = "MANIFEST.json"


class Damaged(RunError):
    """A checkpoint whose content is not what was written."""


def dump_manifest(step: int, score: float | None, files: Mapping[str, Mapping[str, Any]]) -> bytes:
    """Return the bytes of MANIFEST.json, which holds the sha256 of its own other fields.

    `files` maps each name to its "size" and "sha256". Later format versions must keep this seal, so that a damaged
    version number is not mistaken for a later version.
    """
    return dump_sealed({"step": step, "score": score, "files": files}, FORMAT_VERSION)


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the fields step, score and files. Raise Damaged when they changed, RunError for another format_version."""
    path = folder / MANIFEST
    try:
        fields = read_sealed(path, Damaged)
    except StorageError as error:  # such as a bad sector: an earlier checkpoint may be readable
        raise Damaged(error.problems) from error
    check_version(path, fields, FORMAT_VERSION)
    if not _well_formed(fields):
        raise Damaged("the fields step, score and files are expected. gptlite did not write this file.", str(path))
    return fields


def _well_formed(fields: Mapping[str, Any]) -> bool:
    match fields:
        case {"step": int(), "score": None | int() | float(), "files": dict(files)}:
            return all(_is_plain_name(name) and _is_file_record(record) for name, record in files.items())
    return False


def _is_plain_name(name: str) -> bool:
    return name not in ("", ".", "..") and not re.search(r"[/\\\0:]", name)


def _is_file_record(record: object) -> bool:
    return isinstance(record, dict) and {key: type(value) for key, value in record.items()} == {
        "size": int,
        "sha256": str,
    }
