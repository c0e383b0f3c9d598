"""The TensorBoard sink: event files in tensorboard's own record format and protocol buffers, without torch."""

from __future__ import annotations

import re
import socket
import time as clock
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gptlite import durable
from gptlite.runs.images import Pixels, png

_NOT_CURVES = ("tokens", "elapsed")  # counters: they grow as straight lines
_EVENT_FILE = re.compile(r"events\.out\.tfevents\.(\d+)\.")


class TensorBoardSink:
    """Scalars under train/, val/ and speed/, config and samples as text, and images, in event files in `folder`.

    Nothing is imported or written before the first call. Each resume adds a file, which says first that earlier events
    after `resume_step` are void: the curves are unbroken and have no step twice. With None, earlier files go. Every
    event is written by the caller's thread: an error is the caller's, at once.
    """

    def __init__(self, folder: Path, resume_step: int | None, config: str = "") -> None:
        self._folder = folder
        self._resume_step = resume_step
        self._config = config
        self._file: durable.OutFile | None = None
        self._records: Any = None

    def log(self, step: int, split: str, values: Mapping[str, float], time: Mapping[str, float]) -> None:
        scalars = {f"{split}/{name}": x for name, x in values.items() if name not in _NOT_CURVES}
        if split == "train":  # one curve of speed, not one per split
            scalars |= {f"speed/{name}": x for name, x in time.items() if name not in _NOT_CURVES}
        if scalars:
            self._write(step, [{"tag": tag, "simple_value": float(x)} for tag, x in scalars.items()])

    def sample(self, step: int, text: str) -> None:
        self._write(step, [_text("samples", text)])

    def image(self, step: int, tag: str, pixels: Pixels) -> None:
        height, width, channels = pixels.shape
        image = {"height": height, "width": width, "colorspace": channels, "encoded_image_string": png(pixels)}
        self._write(step, [{"tag": tag, "image": image}])

    def sync(self) -> None:
        if self._file:
            self._file.sync()

    def close(self) -> None:
        if self._file:
            self._file.close()

    def _write(self, step: int, values: list[dict[str, Any]]) -> None:
        from tensorboard.compat.proto.event_pb2 import Event  # type: ignore[import-untyped]

        if self._records is None:
            self._begin()
        event = Event(wall_time=clock.time(), step=step, summary={"value": values})
        self._records.write(event.SerializeToString())

    def _begin(self) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.record_writer import RecordWriter  # type: ignore[import-untyped]

        if self._resume_step is None:
            durable.remove_tree(self._folder)
        durable.make_dirs(self._folder)
        # Readers take files in the order of their names: of two made in one second, or after a clock went back, the
        # later must sort after the earlier.
        stamps = [int(found[1]) for path in self._folder.iterdir() if (found := _EVENT_FILE.match(path.name))]
        stamp = max([int(clock.time()), *(earlier + 1 for earlier in stamps)])
        self._file = durable.OutFile.create(self._folder / f"events.out.tfevents.{stamp:010d}.{socket.gethostname()}")
        self._records = RecordWriter(self._file)
        # Every file needs the START, the first too: TensorBoard takes the first that it sees for no restart.
        first_step = 0 if self._resume_step is None else self._resume_step + 1
        start = Event(wall_time=clock.time(), step=first_step, session_log={"status": "START"})
        for event in (Event(wall_time=clock.time(), file_version="brain.Event:2"), start):
            self._records.write(event.SerializeToString())
        if self._config and not stamps:
            self._write(0, [_text("config", self._config)])


def _text(tag: str, text: str) -> dict[str, Any]:
    """A text summary. TensorBoard reads Markdown: indented by four, it is shown as it is."""
    from tensorboard.plugins.text.metadata import create_summary_metadata  # type: ignore[import-untyped]

    shown = "\n".join("    " + line for line in text.split("\n")).encode(errors="replace")
    tensor = {"dtype": "DT_STRING", "tensor_shape": {}, "string_val": [shown]}
    return {"tag": tag, "metadata": create_summary_metadata(tag, ""), "tensor": tensor}
