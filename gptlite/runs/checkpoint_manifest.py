"""MANIFEST.json: what a checkpoint's folder must hold, and the seal on that list."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gptlite.errors import RunError
from gptlite.json_files import check_version, dump_record, read_json

MANIFEST = "MANIFEST.json"


class Damaged(RunError):
    """A checkpoint that is not what was written."""


def dump_manifest(step: int, score: float | None, files: Mapping[str, Mapping[str, Any]]) -> bytes:
    """A record that holds the sha256 of itself without that entry, so that no change to it goes unseen.

    `files` maps each name to its "size" and "sha256". Later format versions keep the seal: a damaged version number
    must not look like a version from the future.
    """
    fields = {"step": step, "score": score, "files": files}
    return dump_record({**fields, "sha256": _seal(fields)})


def read_manifest(folder: Path) -> dict[str, Any]:
    """The fields step, score and files; Damaged when they are not what was written, RunError for another version."""
    path = folder / MANIFEST
    try:
        fields = read_json(path)
    except RunError as error:
        raise Damaged(error.problems) from error
    seal = fields.pop("sha256", None)
    if seal != _seal(fields):
        raise Damaged(f"{path}: sha256 = {str(seal)[:12]}...: that of its other fields; its content changed")
    check_version(path, fields)
    if not _well_formed(fields):
        raise Damaged(f"{path}: content = other fields: step, score and files; it is no checkpoint of ours")
    return fields


def _seal(fields: Mapping[str, Any]) -> str | None:
    try:
        return hashlib.sha256(dump_record(fields)).hexdigest()
    except ValueError:  # NaN, which is never written
        return None


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
