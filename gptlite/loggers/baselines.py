"""Baselines (unigram, gzip, xz) as horizontal lines on the TensorBoard charts of all runs on a text.

    runs/.baselines/story.txt-3fa2c1/xz 2.943/    val/bits_per_byte is 2.943 from step 0 to the last of the longest run

All runs on a text share these folders, since TensorBoard selects nothing at first where it finds more than 40. They may
be removed; the next run writes them again.
"""

from __future__ import annotations

import time as clock
from collections.abc import Mapping
from pathlib import Path

from gptlite.loggers.events import encode_event
from gptlite.loggers.metrics import Sink
from gptlite.storage import files

FOLDER = ".baselines"  # beside the runs, whose names cannot begin with a dot
TAG = "val/bits_per_byte"


class BaselineSink(Sink):
    """Extends the lines to the length of the run: at its first evaluation, whenever it has doubled, and at its end.

    folder: of the text. bits_per_byte: by the name of the baseline.
    """

    def __init__(self, folder: Path, bits_per_byte: Mapping[str, float]) -> None:
        self._folder = folder
        self._bits_per_byte = bits_per_byte
        self._length = self._last = 0

    def log(self, step: int, split: str, values: Mapping[str, float], time: Mapping[str, float]) -> None:
        if split == "val":
            self._last = step
            if step >= 2 * self._length:
                self._extend()

    def close(self) -> None:
        if self._last > self._length:
            self._extend()

    def _extend(self) -> None:
        self._length = self._last
        for name, value in self._bits_per_byte.items():
            line = self._folder / f"{name} {value:.3f}"
            files.make_dirs(line)
            written = max((path.name for path in line.iterdir()), default="")
            for end in (0, self._last):
                if (name := f"events.out.tfevents.{end:010d}.baseline") > written:
                    files.replace(line / name, _point(end, value))


def _point(step: int, value: float) -> bytes:
    """Return the bytes of an event file with one point."""
    now, values = clock.time(), [{"tag": TAG, "simple_value": value}]
    version = encode_event(wall_time=now, file_version="brain.Event:2")
    return version + encode_event(wall_time=now, step=step, summary={"value": values})
