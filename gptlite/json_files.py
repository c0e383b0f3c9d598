"""JSON files with a `format_version`: one way to write them and one way to check them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gptlite import files
from gptlite.errors import RunError, UserError

FORMAT_VERSION = 1


def dump_json(fields: Mapping[str, Any]) -> bytes:
    """Return the bytes of a JSON file. Equal fields give equal bytes. Raise ValueError for non-finite numbers."""
    return (json.dumps(fields, indent=2, sort_keys=True, allow_nan=False) + "\n").encode()


def dump_versioned(fields: Mapping[str, Any]) -> bytes:
    """As dump_json, with the format_version."""
    return dump_json({"format_version": FORMAT_VERSION, **fields})


def write_versioned(path: Path, fields: Mapping[str, Any]) -> None:
    """Write or replace a file of fields and the format_version, atomically and durably."""
    files.replace(path, dump_versioned(fields))


def read_json(path: Path, error: type[UserError] = RunError) -> dict[str, Any]:
    """Return the object in a JSON file. Raise `error` when the file is missing, unreadable or something else."""
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise error("this file is missing, so the folder is incomplete. Check the path.", str(path)) from None
    except (OSError, ValueError, RecursionError) as problem:
        reason = str(problem).splitlines()[0][:80]
        raise error(f"this cannot be read as a JSON object: {reason}. The file is damaged.", str(path)) from problem
    if not isinstance(value, dict):
        raise error(f"this is a {type(value).__name__}, not a JSON object. The file is damaged.", str(path))
    return value


def check_version(
    path: Path, fields: Mapping[str, Any], known: int = FORMAT_VERSION, error: type[UserError] = RunError
) -> None:
    """Raise `error`, naming both versions, when the format_version is not `known`."""
    version = fields.get("format_version")
    if type(version) is not int or version != known:
        raise error(
            f"format_version is {str(version)[:40]}, and this gptlite reads {known}. Use the version that wrote it.",
            str(path),
        )


def read_versioned(path: Path, error: type[UserError] = RunError) -> dict[str, Any]:
    """Return the fields that `write_versioned` wrote. Raise `error` for anything else."""
    fields = read_json(path, error)
    check_version(path, fields, error=error)
    return fields
