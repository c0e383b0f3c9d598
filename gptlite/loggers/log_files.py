"""Log files of JSON lines: appending to them, and cutting them back to a checkpoint, whose record seals them."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gptlite.formatting import Say, counted
from gptlite.storage import files


@dataclass(frozen=True)
class LogEnd:
    """Where a log file ended at a checkpoint: its size in bytes and the sha256 of these."""

    size: int
    sha256: str


class LogFile:
    """A file to which lines are appended, unbuffered, and the digest of all of them."""

    def __init__(self, path: Path) -> None:
        content = _read(path)
        self._size, self._digest = len(content), hashlib.sha256(content)
        self._file = files.OutFile.append(path)

    def write(self, fields: Mapping[str, Any]) -> None:
        """Append a line."""
        # A lone surrogate is not valid UTF-8; it becomes an escape that JSON reads back.
        line = (json.dumps(fields, ensure_ascii=False, allow_nan=False) + "\n").encode(errors="backslashreplace")
        self._file.write(line)
        self._size += len(line)
        self._digest.update(line)

    def sync(self) -> None:
        """Return when all lines are durable. Raise StorageError where the run's folder was moved away."""
        self._file.check_in_place()
        self._file.sync()

    @property
    def end(self) -> LogEnd:
        return LogEnd(self._size, self._digest.hexdigest())

    def close(self) -> None:
        self._file.close()


def cut_log(path: Path, end: LogEnd | None, last_step: int, say: Say) -> None:
    """Cut a log back to where it ended at a checkpoint. A file that needs no change is not written.

    end: as the checkpoint has it. Where the file is not what it says, `say` gets a line, and what is whole is kept: the
    lines up to `last_step`.
    """
    content = _read(path)
    if end is not None and _matches(content, end):
        kept = content[: end.size]
    else:
        if end is not None:
            say(f"warning: {path} changed after it was written, or lacks lines; what is whole is kept")
        steps = [(line, _step_of(line)) for line in io.BytesIO(content)]
        if damaged := sum(step is None and line.endswith(b"\n") for line, step in steps):
            say(f"{path}: removed {counted(damaged, 'damaged line')}.")
        kept = b"".join(line for line, step in steps if step is not None and step <= last_step)
    if kept != content:
        files.replace(path, kept)


def starts_with(path: Path, end: LogEnd) -> bool:
    """Return whether a log is what it was when it ended there, perhaps with more lines since."""
    return _matches(_read(path), end)


def _matches(content: bytes, end: LogEnd) -> bool:
    return len(content) >= end.size and hashlib.sha256(content[: end.size]).hexdigest() == end.sha256


def _read(path: Path) -> bytes:
    """Return the content of a log: nothing where there is no file."""
    with files.storage_errors(path, "read"), contextlib.suppress(FileNotFoundError), files.open_own(path) as file:
        return file.read()
    return b""


def _step_of(line: bytes) -> int | None:
    """Return the step of a whole line; None for the incomplete last one that a kill leaves, and for damaged lines."""
    fields = parse_line(line) if line.endswith(b"\n") else None
    return None if fields is None else fields["step"]


def parse_line(line: bytes) -> dict[str, Any] | None:
    """Return the object in a line of a log; None where it is damaged or has no step."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) and type(fields.get("step")) is int else None
