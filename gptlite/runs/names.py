"""Names of runs: which are valid, and which are free."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

from gptlite.errors import RunError
from gptlite.storage import files

INFO = "run.json"  # written before config.yaml
_MAX_NAME_BYTES = 200  # file systems allow 255, and unfinished files have a suffix
_RESERVED = ("latest", "best")


def check_name(name: str | None, base: str) -> None:
    """Raise RunError where `name`, or without it `base`, cannot be the name of a run."""
    name = base if name is None else name
    if reason := _why_invalid(name):
        shown = name if name.isprintable() and 0 < len(name) <= 40 else repr(name[:40])
        raise RunError(f"a run's name {reason}. Choose another name.", f"run {shown}")


def _why_invalid(name: str) -> str | None:
    if not name:
        return "cannot be empty"
    if name.lower() in _RESERVED:
        return f"cannot be {' or '.join(_RESERVED)}, which are reserved"
    if "/" in name or "\\" in name or not name.isprintable() or name != name.strip():
        return "cannot contain slashes or control characters, nor begin or end with a space"
    if name[0] in ".-":
        return "cannot begin with a dot or a dash"
    if files.TEMP_MARK in name:
        return f"cannot contain {files.TEMP_MARK}, which marks unfinished files"
    if len(name.encode()) > _MAX_NAME_BYTES:
        return f"can have at most {_MAX_NAME_BYTES} bytes"
    return None


def numbered(root: Path, base: str) -> Iterator[Path]:
    """Yield the folders base, base-2, base-3, ..."""
    yield root / base
    for number in itertools.count(2):
        yield root / f"{base}-{number}"


def is_free(path: Path) -> bool:
    """Return whether a run can begin here: there is nothing, or what a start leaves that was killed early."""
    if not os.path.lexists(path):
        return True
    with files.storage_errors(path, "read"):
        names = [entry.name for entry in path.iterdir()] if path.is_dir() else [path.name]
    return all(name.startswith(".") or files.TEMP_MARK in name or name == INFO for name in names)
