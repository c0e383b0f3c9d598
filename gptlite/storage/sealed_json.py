"""Sealed JSON files: their fields, a `format_version`, and a sha256 of both."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gptlite.errors import Damaged, RunError
from gptlite.storage import files

FORMAT_VERSION = 3  # of everything that gptlite writes, raised when any of it changes
RESTORE = "Restore the file."


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
    except (ValueError, RecursionError) as problem:
        reason = str(problem).splitlines()[0][:80]
        raise Damaged(f"this cannot be read as a JSON object: {reason}. The file is damaged.", str(path)) from problem
    if not isinstance(value, dict):
        raise Damaged(f"this is a {type(value).__name__}, not a JSON object. The file is damaged.", str(path))
    return value


def read_sealed(path: Path, *, advice: str = RESTORE) -> dict[str, Any]:
    """Return the fields that `dump_sealed` wrote. Raise Damaged where they changed, RunError for another version.

    The seal is checked first, so that a damaged number is not mistaken for another version. advice: what to do, a
    sentence.
    """
    with files.storage_errors(path, "read"):
        try:
            data = files.read_own(path)
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
    if type(version) is not int or version != FORMAT_VERSION:
        raise RunError(
            f"another version of gptlite wrote this: its format is {str(version)[:40]}, and this one reads "
            f"{FORMAT_VERSION}. Use that version, or make it anew.",
            str(path),
        )
    del fields["format_version"]
    return fields
