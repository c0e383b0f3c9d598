"""What simple models make of a text, as level lines on the charts of all runs that were trained on it.

    runs/.reference/story.txt-3fa2c1/xz 2.943/    val/bits_per_byte is 2.943 from step 0 to where the longest run was

TensorBoard selects nothing at first where it finds more than 40 folders, and so the runs of a text share these. They
may be removed: the next run draws them anew.
"""

from __future__ import annotations

import re
import time as clock
from collections.abc import Mapping
from pathlib import Path

from gptlite import files
from gptlite.loggers.events import record
from gptlite.loggers.media import Picture

FOLDER = ".reference"  # beside the runs, whose names may not begin with a dot
TAG = "val/bits_per_byte"
_NAME = re.compile(r"events\.out\.tfevents\.(\d+)\.reference")


class BaselineSink:
    """Makes the lines as long as the run: at its first evaluation, whenever it has doubled since, and at its end.

    folder: of the text; bits_per_byte: by the name of the model.
    """

    def __init__(self, folder: Path, bits_per_byte: Mapping[str, float]) -> None:
        self._folder = folder
        self._bits_per_byte = bits_per_byte
        self._drawn = self._last = 0

    def log(self, step: int, split: str, values: Mapping[str, float], time: Mapping[str, float]) -> None:
        if split == "val":
            self._last = step
            if step >= 2 * self._drawn:
                self._draw()

    def sample(self, step: int, text: str) -> None:
        """Nothing: lines only."""

    def picture(self, step: int, tag: str, picture: Picture) -> None:
        """Nothing: lines only."""

    def sync(self) -> None:
        """Nothing: what is drawn is on the disk."""

    def close(self) -> None:
        if self._last > self._drawn:
            self._draw()

    def _draw(self) -> None:
        self._drawn = self._last
        for name, value in self._bits_per_byte.items():
            line = self._folder / f"{name} {value:.3f}"
            files.make_dirs(line)
            ends = [int(found[1]) for path in line.iterdir() if (found := _NAME.fullmatch(path.name))]
            for end in sorted({0, self._last}):
                if end > max(ends, default=-1):
                    files.replace(line / f"events.out.tfevents.{end:010d}.reference", _point(end, value))


def _point(step: int, value: float) -> bytes:
    """An event file with one point."""
    now, values = clock.time(), [{"tag": TAG, "simple_value": value}]
    return record(wall_time=now, file_version="brain.Event:2") + record(
        wall_time=now, step=step, summary={"value": values}
    )
