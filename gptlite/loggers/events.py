"""A folder of event files, in tensorboard's own record format and protocol buffers, without torch."""

from __future__ import annotations

import io
import re
import socket
import time as clock
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gptlite import files

Values = Sequence[dict[str, Any]]  # the fields of Summary.Value: tag, and what it holds

_EVENT_FILE = re.compile(r"events\.out\.tfevents\.(\d+)\.")


class EventFolder:
    """What TensorBoard shows as one run. Steps may be updates, tokens or seconds, the same for all of its tags.

    Nothing is imported or written before the first call. Each sitting adds a file, which says first that all events
    from `first_step` on in earlier files are void: curves are unbroken and have no step twice. `opening` makes the
    values of step 0, told whether the file is the very first. Every event is written by the caller's thread: an error
    is the caller's, at once.
    """

    def __init__(self, folder: Path, first_step: int, opening: Callable[[bool], Values] = lambda is_first: ()) -> None:
        self._folder = folder
        self._first_step = first_step
        self._opening = opening
        self._file: files.OutFile | None = None

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Numbers by their tags."""
        self.write(step, [{"tag": tag, "simple_value": float(x)} for tag, x in values.items()])

    def write(self, step: int, values: Values) -> None:
        """One event; none where there is nothing to write."""
        if values:
            self.begin()
            self._record(step, summary={"value": values})

    def sync(self) -> None:
        """Return when everything so far would survive a power cut."""
        if self._file:
            self._file.sync()

    def close(self) -> None:
        """Finish."""
        if self._file:
            self._file.close()

    def _record(self, step: int, **what: Any) -> None:
        assert self._file is not None, "begin comes first"
        self._file.write(record(wall_time=clock.time(), step=step, **what))

    def begin(self) -> None:
        """Make the file, if that was not done yet."""
        if self._file is not None:
            return
        files.make_dirs(self._folder)
        # Readers take files in the order of their names: of two made in one second, or after a clock went back, the
        # later must sort after the earlier.
        stamps = [int(found[1]) for path in self._folder.iterdir() if (found := _EVENT_FILE.match(path.name))]
        stamp = max([int(clock.time()), *(earlier + 1 for earlier in stamps)])
        self._file = files.OutFile.create(self._folder / f"events.out.tfevents.{stamp:010d}.{socket.gethostname()}")
        self._record(0, file_version="brain.Event:2")
        # Every file needs the START, the first too: TensorBoard takes the first that it sees for no restart.
        self._record(self._first_step, session_log={"status": "START"})
        self.write(0, self._opening(not stamps))


def record(**fields: Any) -> bytes:
    """An event as it stands in a file, its four parts in one piece: a kill leaves all of it or nothing."""
    from tensorboard.compat.proto.event_pb2 import Event  # type: ignore[import-untyped]
    from tensorboard.summary.writer.record_writer import RecordWriter  # type: ignore[import-untyped]

    file = io.BytesIO()
    RecordWriter(file).write(Event(**fields).SerializeToString())
    return file.getvalue()
