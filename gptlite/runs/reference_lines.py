"""What simple models make of a text, as lines on the charts of all runs that were trained on it.

    runs/reference/story.txt/xz 2.943/    val/bits_per_byte is 2.943 at step 0 and at the last step of the longest run

TensorBoard selects nothing at first where it finds more than 40 folders, and so the runs share these.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gptlite import durable

FOLDER = "reference"  # beside the runs; no run may be called so
TAG = "val/bits_per_byte"
_NAME = re.compile(r"events\.out\.tfevents\.(\d+)\.reference")


@dataclass(frozen=True)
class ReferenceLines:
    """folder: of the text; bits_per_byte: by the name of the model."""

    folder: Path
    bits_per_byte: Mapping[str, float]

    def draw_to(self, step: int) -> None:
        """Make every line reach that step. Each end has a file; runs that write it at the same time write the same."""
        for name, value in self.bits_per_byte.items():
            line = self.folder / f"{name} {value:.3f}"
            durable.make_dirs(line)
            ends = [int(found[1]) for path in line.iterdir() if (found := _NAME.fullmatch(path.name))]
            for end in sorted({0, step}):
                if end > max(ends, default=-1):
                    durable.replace(line / f"events.out.tfevents.{end:010d}.reference", _events(end, value))


def _events(step: int, value: float) -> bytes:
    """An event file with one point; its time is that of the epoch, so that the same point gives the same bytes."""
    from tensorboard.compat.proto.event_pb2 import Event  # type: ignore[import-untyped]
    from tensorboard.summary.writer.record_writer import RecordWriter  # type: ignore[import-untyped]

    point: dict[str, Any] = {"tag": TAG, "simple_value": value}
    file = io.BytesIO()
    records = RecordWriter(file)
    for event in (Event(file_version="brain.Event:2"), Event(step=step, summary={"value": [point]})):
        records.write(event.SerializeToString())
    return file.getvalue()
