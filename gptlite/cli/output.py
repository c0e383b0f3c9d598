"""Files that results go to."""

from __future__ import annotations

from pathlib import Path

from gptlite.errors import ConfigError


def writable(out: str | Path) -> Path:
    """Where --out points, before any work is done for it. ConfigError where no file can be written."""
    path = Path(out)
    if path.is_dir():
        raise ConfigError(f"--out = {path}: a file's name, and this is a folder; name a file in it")
    if not path.parent.is_dir():
        raise ConfigError(f"--out = {path}: no folder {path.parent}; make it first, or choose another place")
    return path
