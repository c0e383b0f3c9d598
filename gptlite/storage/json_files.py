"""JSON files with a `format_version`, and sealed ones, which hold a sha256 of their other fields."""

from __future__ import annotations

import errno
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gptlite.errors import RunError, UserError
from gptlite.storage import files

FORMAT_VERSION = 1
SEALED_VERSION = 2  # of the files that version 1 wrote without a seal
MAX_BYTES = 64 << 20


def dump_json(fields: Mapping[str, Any]) -> bytes:
    """Return the bytes of a JSON file. Equal fields give equal bytes. Raise ValueError for non-finite numbers."""
    return (json.dumps(fields, indent=2, sort_keys=True, allow_nan=False) + "\n").encode()


def seal(fields: Mapping[str, Any]) -> str:
    """The sha256 of the fields as they are written."""
    return hashlib.sha256(dump_json(fields)).hexdigest()


def dump_sealed(fields: Mapping[str, Any], version: int = SEALED_VERSION) -> bytes:
    """As dump_json, with the format_version and a `sha256` of all other fields."""
    versioned = {**fields, "format_version": version}
    return dump_json({**versioned, "sha256": seal(versioned)})


def write_sealed(path: Path, fields: Mapping[str, Any]) -> None:
    """Write or replace a sealed file, atomically and durably."""
    files.replace(path, dump_sealed(fields))


def read_json(path: Path, error: type[UserError] = RunError) -> dict[str, Any]:
    """Return the object in a JSON file. Raise `error` when the file is missing, unreadable or something else."""
    try:
        data = files.read_own(path, MAX_BYTES)
    except FileNotFoundError:
        raise error("this file is missing, so the folder is incomplete. Check the path.", str(path)) from None
    except OSError as problem:
        if problem.errno == errno.EFBIG:
            raise error(f"{problem.strerror}, and should be small. The file is damaged.", str(path)) from problem
        with files.storage_errors(path, "read"):
            raise
    return parse_json(data, path, error)


def parse_json(data: bytes, path: Path, error: type[UserError] = RunError) -> dict[str, Any]:
    """Return the object that these bytes of a file are in JSON. Raise `error` for something else."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as problem:
        reason = str(problem).splitlines()[0][:80]
        raise error(f"this cannot be read as a JSON object: {reason}. The file is damaged.", str(path)) from problem
    if not isinstance(value, dict):
        raise error(f"this is a {type(value).__name__}, not a JSON object. The file is damaged.", str(path))
    return value


def check_version(path: Path, fields: Mapping[str, Any], *known: int, error: type[UserError] = RunError) -> None:
    """Raise `error`, naming both sides, when the format_version is not one of `known`."""
    version = fields.get("format_version")
    if type(version) is not int or version not in known:
        readable = " and ".join(map(str, known))
        raise error(
            f"format_version is {str(version)[:40]}, and this gptlite reads {readable}. Use the version that wrote it.",
            str(path),
        )


def read_sealed(path: Path, error: type[UserError] = RunError, *, unsealed: int | None = None) -> dict[str, Any]:
    """Return the fields that `dump_sealed` wrote, without the seal; their format_version is not checked.

    unsealed: an earlier version, whose files have no seal and are returned as they are. Raise `error`, naming both
    digests, when the content is not what was written.
    """
    fields = read_json(path, error)
    expected = fields.pop("sha256", None)
    if expected is None and fields.get("format_version") == unsealed is not None:
        return fields
    try:
        found = seal(fields)
    except RecursionError:  # json reads some depths that it cannot write
        raise error("this is nested too deeply. The file is damaged.", str(path)) from None
    except ValueError:
        raise error(
            "a number in this file is not finite, which is never written. Restore the file.", str(path)
        ) from None
    if expected is None:
        raise error("this file has no sha256 of its content. It is damaged, or gptlite did not write it.", str(path))
    if found != expected:
        raise error(
            f"this file changed after it was written: its sha256 was {str(expected)[:12]} and is now {found[:12]}. "
            "Restore the file.",
            str(path),
        )
    return fields


def read_facts(path: Path) -> dict[str, Any]:
    """Return the fields that `write_sealed` wrote; version 1 has no seal. Raise RunError for anything else."""
    fields = read_sealed(path, unsealed=FORMAT_VERSION)
    check_version(path, fields, FORMAT_VERSION, SEALED_VERSION)
    return fields
