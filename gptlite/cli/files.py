"""Output files of `--out`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gptlite.errors import ConfigError, DataError


def writable(out: str | Path) -> Path:
    """Check the path of --out before any work is done for it. Raises ConfigError where no file can be written."""
    path = Path(out)
    if path.is_dir():
        raise ConfigError("this is a folder. Name a file in it.", where=f"--out {path}")
    if not path.parent.is_dir():
        raise ConfigError(f"there is no folder {path.parent}. Make it first, or choose another.", where=f"--out {path}")
    return path


def check_text_file(file: str, where: str) -> None:
    """DataError if there is no such file, or if it is a folder."""
    if Path(file).is_dir():
        raise DataError("this is a folder, not a text file. Name a file in it.", where=where)
    if not Path(file).exists():
        raise DataError("there is no such file.", where=where)


def output_path(names: Sequence[str], out: str | None, ending: str) -> Path:
    """Return where a plot or page of these runs goes: --out, or RUN-ending. ConfigError if no file can be written."""
    more = f"-and-{len(names) - 1}-more" if len(names) > 1 else ""
    return writable(f"{names[0]}{more}-{ending}" if out is None else out)


def write_output(path: Path, text: str) -> None:
    """Write a file, also behind a link, or into a pipe or a device such as /dev/stdout. Raises StorageError."""
    from gptlite.storage import files

    with files.storage_errors(path, "write"):
        path.write_bytes(text.encode())
