"""Log files of JSON lines: appending to them, and cutting them back to a checkpoint, whose record seals them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gptlite.formatting import Say, counted
from gptlite.storage import files

MAX_LINE = 1 << 20  # bytes


@dataclass(frozen=True)
class LogEnd:
    """Where a log file ended at a checkpoint: its size in bytes and the sha256 of these."""

    size: int
    sha256: str


NO_ENDS: Mapping[str, LogEnd] = MappingProxyType({})


class LogFile:
    """A file to which lines are appended, unbuffered, and the digest of all of them."""

    def __init__(self, path: Path) -> None:
        self._size, self._digest = _read_digest(path, math.inf)
        self._file = files.OutFile.append(path)

    def write(self, fields: Mapping[str, Any]) -> None:
        """Append a line."""
        line = _line(fields)
        self._file.write(line)
        self._size += len(line)
        self._digest.update(line)

    def sync(self) -> None:
        """Return when all lines are durable. StorageError where the run's folder was moved away."""
        self._file.check_in_place()
        self._file.sync()

    @property
    def end(self) -> LogEnd:
        return LogEnd(self._size, self._digest.hexdigest())

    def close(self) -> None:
        self._file.close()


def _line(fields: Mapping[str, Any]) -> bytes:
    # A lone surrogate is not valid UTF-8; it becomes an escape that JSON reads back.
    return (json.dumps(fields, ensure_ascii=False, allow_nan=False) + "\n").encode(errors="backslashreplace")


def cut_log(path: Path, end: LogEnd | None, last_step: int | None, warn: Say) -> None:
    """Cut a log back to where it ended at a checkpoint.

    end: as the checkpoint has it. Where the file is not what it says, that is one line to `warn`, and what is whole is
    kept: the lines up to `last_step` (None: none).
    """
    if end is not None and starts_with(path, end):
        with files.OutFile.append(path) as file:
            file.truncate(end.size)
        return
    if end is not None:
        warn(f"warning: {path} changed after it was written, or lacks lines; what is whole is kept")
    keep_lines(path, last_step, warn)


def starts_with(path: Path, end: LogEnd) -> bool:
    """Whether a log is what it was when it ended there, perhaps with more lines since."""
    size, digest = _read_digest(path, end.size)
    return LogEnd(size, digest.hexdigest()) == end


def keep_lines(path: Path, last_step: int | None, warn: Say) -> None:
    """Remove the lines after `last_step` (None: all), the incomplete last line that a kill leaves, and damaged lines.

    Damaged lines are one line to `warn`. A file that needs no change is not written.
    """
    limit = -1 if last_step is None else last_step
    damaged = dropped = 0
    for line in _lines(path):
        step = _step_of(line)
        damaged += step is None and line.endswith(b"\n")
        dropped += step is None or step > limit
    if damaged:
        warn(f"{path}: removed {counted(damaged, 'damaged line')}.")
    if dropped:
        files.replace(path, (line for line in _lines(path) if (step := _step_of(line)) is not None and step <= limit))


def _lines(path: Path) -> Iterator[bytes]:
    """The lines of a file with their ends, one at a time; a line above MAX_LINE bytes in pieces, which are no JSON."""
    with files.storage_errors(path, "read"):
        try:
            with files.open_own(path) as file:
                yield from iter(lambda: file.readline(MAX_LINE), b"")
        except FileNotFoundError:
            return


def _read_digest(path: Path, limit: float) -> tuple[int, Any]:
    """The size and the running sha256 of a file, or of its first `limit` bytes; of nothing where there is no file."""
    size, digest = 0, hashlib.sha256()
    with files.storage_errors(path, "read"), contextlib.suppress(FileNotFoundError), files.open_own(path) as file:
        while piece := file.read(int(min(MAX_LINE, limit - size))):
            size += len(piece)
            digest.update(piece)
    return size, digest


def _step_of(line: bytes) -> int | None:
    if not line.endswith(b"\n"):
        return None
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return None
    step = fields.get("step") if isinstance(fields, dict) else None
    return step if type(step) is int else None
