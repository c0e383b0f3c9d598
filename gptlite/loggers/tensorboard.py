"""The TensorBoard sink: which number goes into which folder, under which tag. README.md lists the tags.

    tb/             steps are updates: every tag but those of the next two
    tb/tokens/      steps are tokens: val_over_tokens/...
    tb/seconds/     steps are seconds of training: val_over_seconds/...

TensorBoard voids what a resume repeats by step, and so each axis needs a folder of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gptlite import files
from gptlite.loggers.events import EventFolder, Values
from gptlite.loggers.heatmap import Pixels, png
from gptlite.loggers.hparams import Setting, hparams
from gptlite.loggers.media import Embeddings, Histogram, Picture
from gptlite.loggers.projector import write_projector

COUNTERS = ("tokens",)  # they grow as straight lines: no curves
MACHINE = {
    "tokens_per_second": "speed/tokens_per_second",
    "share_of_peak": "speed/share_of_peak",
    "peak_mib": "memory/peak",
}


@dataclass(frozen=True)
class Reached:
    """The last of a run's events that stay when it goes on, and its best figure so far."""

    step: int = -1
    tokens: int = -1
    seconds: float = -1.0
    best_bits_per_byte: float = math.inf


@dataclass(frozen=True)
class About:
    """What is said of a run once."""

    config: str = ""
    settings: Mapping[str, Setting] | None = None


class TensorBoardSink:
    """Curves, texts and pictures in event files below `folder`; nothing is written before the first call.

    reached: of a run that goes on; with None, what lies in the folder goes.
    """

    def __init__(self, folder: Path, reached: Reached | None = None, about: About | None = None) -> None:
        self._folder = folder
        self._is_new, self._begun = reached is None, False
        self._about = about or About()
        last = reached or Reached()
        self._best = last.best_bits_per_byte
        self._last_second = math.ceil(last.seconds)
        self._updates = EventFolder(folder, last.step + 1, self._opening)
        self._tokens = EventFolder(folder / "tokens", last.tokens + 1)
        self._seconds = EventFolder(folder / "seconds", self._last_second + 1)

    def log(self, step: int, split: str, values: Mapping[str, float], time: Mapping[str, float]) -> None:
        self._begin()
        curves = {name: x for name, x in values.items() if name not in COUNTERS}
        scalars = {f"{split}/{name}": x for name, x in curves.items()}
        scalars |= {MACHINE[name]: x for name, x in time.items() if name in MACHINE}
        if split == "val" and "bits_per_byte" in values:
            self._best = min(self._best, values["bits_per_byte"])
            scalars["best/bits_per_byte"] = self._best
        self._updates.scalars(step, scalars)
        if split == "val":
            self._log_over_axes(curves, values, time)

    def _log_over_axes(
        self, curves: Mapping[str, float], values: Mapping[str, float], time: Mapping[str, float]
    ) -> None:
        if "tokens" in values:
            self._tokens.scalars(int(values["tokens"]), {f"val_over_tokens/{name}": x for name, x in curves.items()})
        second = math.ceil(time.get("elapsed", -1.0))
        if second > self._last_second:  # steps are whole numbers: of evaluations within a second the first
            self._last_second = second
            self._seconds.scalars(second, {f"val_over_seconds/{name}": x for name, x in curves.items()})

    def sample(self, step: int, text: str) -> None:
        self._begin()
        self._updates.write(step, [_text("samples", text)])

    def picture(self, step: int, tag: str, picture: Picture) -> None:
        self._begin()
        if isinstance(picture, Embeddings):
            write_projector(self._folder, picture)
        elif isinstance(picture, Histogram):
            self._updates.write(step, [_histogram(tag, picture)])
        else:
            self._updates.write(step, [_image(tag, picture)])

    def sync(self) -> None:
        for folder in self._folders():
            folder.sync()

    def close(self) -> None:
        for folder in self._folders():
            folder.close()

    def _folders(self) -> list[EventFolder]:
        return [self._updates, self._tokens, self._seconds]

    def _begin(self) -> None:
        if self._begun:
            return
        self._begun = True
        if self._is_new:
            files.remove_tree(self._folder)
        for folder in self._folders():  # all of them now: a run's first evaluation need not wait for its files
            folder.begin()

    def _opening(self, is_first: bool) -> Values:
        about = self._about
        config = [_text("config", about.config)] if about.config and is_first else []
        # Said again at each sitting, since runs of older versions have not said it; TensorBoard takes the first.
        return [*config, *([] if about.settings is None else hparams(about.settings))]


def _text(tag: str, text: str) -> dict[str, Any]:
    """A text summary. TensorBoard reads Markdown: indented by four, it is shown as it is."""
    from tensorboard.plugins.text.metadata import create_summary_metadata  # type: ignore[import-untyped]

    shown = "\n".join("    " + line for line in text.split("\n")).encode(errors="replace")
    tensor = {"dtype": "DT_STRING", "tensor_shape": {}, "string_val": [shown]}
    return {"tag": tag, "metadata": create_summary_metadata(tag, ""), "tensor": tensor}


def _image(tag: str, pixels: Pixels) -> dict[str, Any]:
    height, width, channels = pixels.shape
    image = {"height": height, "width": width, "colorspace": channels, "encoded_image_string": png(pixels)}
    return {"tag": tag, "image": image}


def _histogram(tag: str, histogram: Histogram) -> dict[str, Any]:
    """A histogram summary: a row for each bin, its left edge, its right edge, its count."""
    from tensorboard.plugins.histogram.metadata import create_summary_metadata  # type: ignore[import-untyped]

    edges, counts = histogram.edges.tolist(), histogram.counts.tolist()
    rows = [number for row in zip(edges[:-1], edges[1:], counts, strict=True) for number in row]
    shape = {"dim": [{"size": len(counts)}, {"size": 3}]}
    tensor = {"dtype": "DT_DOUBLE", "tensor_shape": shape, "double_val": rows}
    return {"tag": tag, "metadata": create_summary_metadata(tag, ""), "tensor": tensor}
