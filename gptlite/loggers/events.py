"""TensorBoard event files, written with tensorboard's own record writer and protocol buffers, without torch."""

from __future__ import annotations

import io
import re
import socket
import time as clock
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gptlite.storage import files

Values = Sequence[dict[str, Any]]  # the fields of Summary.Value: tag, and what it holds

_EVENT_FILE = re.compile(r"events\.out\.tfevents\.(\d+)\.")


@contextmanager
def import_errors() -> Iterator[None]:
    """Turn whatever an import of tensorboard raises into an ImportError, which switches it off: with a broken protobuf
    it is a TypeError, an AttributeError or a RuntimeError."""
    try:
        yield
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ImportError(f"tensorboard cannot be imported ({reason}). Install it and protobuf again.") from error


class EventFolder:
    """A folder that TensorBoard shows as one run. The steps of all its tags are updates, tokens or seconds.

    Nothing is imported or written before the first call. Each session adds a file. It begins by voiding all events from
    `first_step` on in earlier files, so that curves are unbroken and have no step twice. `first_values` returns the
    values of step 0, where nothing is left of earlier files. Events are written in the caller's thread, so that errors
    are raised at once.
    """

    def __init__(self, folder: Path, first_step: int, first_values: Callable[[], Values] = tuple) -> None:
        self._folder, self._first_step, self._first_values = folder, first_step, first_values
        self._file: files.OutFile | None = None

    def write_scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Write numbers by their tags."""
        self.write(step, [{"tag": tag, "simple_value": float(x)} for tag, x in values.items()])

    def write(self, step: int, values: Values) -> None:
        """Write one event; none where there are no values."""
        if values:
            self._open().write(_event(step, summary={"value": values}))

    def sync(self) -> None:
        """Return when everything so far is durable."""
        if self._file:
            self._file.sync()

    def close(self) -> None:
        """Close the file."""
        if self._file:
            self._file.close()

    def _open(self) -> files.OutFile:
        """Return the file, which the first call makes."""
        if self._file is not None:
            return self._file
        version = encode_event(wall_time=clock.time(), file_version="brain.Event:2")  # or ImportError, before any file
        files.make_dirs(self._folder)
        # Readers sort files by name, so a later file needs a later stamp, even within a second or after the clock was
        # set back.
        stamps = [int(found[1]) for path in self._folder.iterdir() if (found := _EVENT_FILE.match(path.name))]
        stamp = max([int(clock.time()), *(earlier + 1 for earlier in stamps)])
        file = files.OutFile.create(self._folder / f"events.out.tfevents.{stamp:010d}.{socket.gethostname()}")
        files.sync_dir(self._folder)
        # The first file needs START too: TensorBoard does not treat the first START that it reads as a restart.
        file.write(version + _event(self._first_step, session_log={"status": "START"}))
        self._file = file
        if self._first_step == 0 or not stamps:
            self.write(0, self._first_values())
        return file


def _event(step: int, **fields: Any) -> bytes:
    return encode_event(wall_time=clock.time(), step=step, **fields)


def encode_event(**fields: Any) -> bytes:
    """Return the bytes of an event, for one write call: a kill then leaves all of it or nothing."""
    with import_errors():
        from tensorboard.compat.proto.event_pb2 import Event  # type: ignore[import-untyped]
        from tensorboard.summary.writer.record_writer import RecordWriter  # type: ignore[import-untyped]

    file = io.BytesIO()
    RecordWriter(file).write(Event(**fields).SerializeToString())
    return file.getvalue()
