"""JSON files that describe themselves: an object with a `format_version`, replaced as a whole."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gptlite import files
from gptlite.errors import RunError, UserError

FORMAT_VERSION = 1


def dump_record(fields: Mapping[str, Any]) -> bytes:
    """The one spelling of a record: equal fields give equal bytes. Non-finite numbers are a ValueError."""
    whole = {"format_version": FORMAT_VERSION, **fields}
    return (json.dumps(whole, indent=2, sort_keys=True, allow_nan=False) + "\n").encode()


def write_record(path: Path, fields: Mapping[str, Any]) -> None:
    """Write or replace a record durably."""
    files.replace(path, dump_record(fields))


def read_json(path: Path, error: type[UserError] = RunError) -> dict[str, Any]:
    """The object in a JSON file; an error when the file is missing, unreadable or something else."""
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise error(f"{path}: file = missing: the folder is incomplete or is another one; check the path") from None
    except (OSError, ValueError, RecursionError) as problem:
        reason = str(problem).splitlines()[0][:80]
        raise error(f"{path}: content = {reason}: a JSON object; the file is damaged or is another one") from problem
    if not isinstance(value, dict):
        raise error(f"{path}: content = {type(value).__name__}: a JSON object; the file is another one")
    return value


def check_version(
    path: Path, fields: Mapping[str, Any], known: int = FORMAT_VERSION, error: type[UserError] = RunError
) -> None:
    """An error that names the version, when it is not `known`."""
    version = fields.get("format_version")
    if type(version) is not int or version != known:
        raise error(
            f"{path}: format_version = {str(version)[:40]}: this gptlite reads {known}; use the version that wrote it"
        )


def read_record(path: Path) -> dict[str, Any]:
    """The fields that `write_record` wrote; a RunError otherwise, naming an unknown format_version."""
    fields = read_json(path)
    check_version(path, fields)
    return fields
