"""The TensorBoard sink: the event folders, tags and plugin data of a run. docs/tensorboard.md lists the tags.

    tb/             the steps are updates: every tag except those of the next two
    tb/tokens/      the steps are tokens: val_over_tokens/...
    tb/seconds/     the steps are seconds of training: val_over_seconds/...

A resume voids what it repeats by step, so each axis needs its own folder.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gptlite.config.yaml import Value, write
from gptlite.loggers.events import EventFolder, Values, import_errors
from gptlite.loggers.media import Image, encode_png
from gptlite.loggers.metrics import Sink

NO_CURVES = ("tokens",)  # a straight line
# The tag of every metric under `time`; None is not shown. A metric that is missing here is a KeyError.
TIME_TAGS: Mapping[str, str | None] = {
    "elapsed": None,  # TensorBoard has its own clock
    "tokens_per_second": "speed/tokens_per_second",
    "mfu": "speed/mfu",
    "peak_mib": "memory/peak_mib",
}


class TensorBoardSink(Sink):
    """Curves, texts and images in event files below `folder`. Nothing is written before the first call.

    config: shown as text. hparams: shown in the HParams tab. A resumed run gives the step, tokens, seconds and best
    score of its checkpoint; later events are void. Without resume_step all earlier ones are.
    """

    def __init__(
        self,
        folder: Path,
        *,
        config: str = "",
        hparams: Mapping[str, Value] | None = None,
        resume_step: int | None = None,
        resume_tokens: int = -1,
        resume_seconds: float = -1.0,
        best_bits_per_byte: float | None = None,
    ) -> None:
        self._config, self._hparams = config, hparams
        self._best = math.inf if best_bits_per_byte is None else best_bits_per_byte
        self._last_second = math.ceil(resume_seconds)
        self._updates = EventFolder(folder, 0 if resume_step is None else resume_step + 1, self._first_values)
        self._tokens = EventFolder(folder / "tokens", resume_tokens + 1)
        self._seconds = EventFolder(folder / "seconds", self._last_second + 1)
        self._folders = (self._updates, self._tokens, self._seconds)

    def log(self, step: int, split: str, values: Mapping[str, float], time: Mapping[str, float]) -> None:
        curves = {name: x for name, x in values.items() if name not in NO_CURVES}
        scalars = {f"{split}/{name}": x for name, x in curves.items()}
        scalars |= {tag: x for name, x in time.items() if (tag := TIME_TAGS[name]) is not None}
        if split == "val" and "bits_per_byte" in values:
            self._best = min(self._best, values["bits_per_byte"])
            scalars["best/bits_per_byte"] = self._best
        self._updates.write_scalars(step, scalars)
        if split == "val" and "tokens" in values:
            over_tokens = {f"val_over_tokens/{name}": x for name, x in curves.items()}
            self._tokens.write_scalars(int(values["tokens"]), over_tokens)
        second = math.ceil(time.get("elapsed", -1.0))
        if split == "val" and second > self._last_second:  # steps are integers: only the first within a second
            self._last_second = second
            self._seconds.write_scalars(second, {f"val_over_seconds/{name}": x for name, x in curves.items()})

    def log_sample(self, step: int, text: str) -> None:
        self._updates.write(step, [_text("samples", text)])

    def log_image(self, step: int, tag: str, image: Image) -> None:
        self._updates.write(step, [_image(tag, image)])

    def sync(self) -> None:
        for folder in self._folders:
            folder.sync()

    def close(self) -> None:
        for folder in self._folders:
            folder.close()

    def _first_values(self) -> Values:
        config = [_text("config", self._config)] if self._config else []
        return [*config, *([] if self._hparams is None else [_hparams(self._hparams)])]


def _hparams(settings: Mapping[str, Value]) -> dict[str, Any]:
    """Encode the settings of a run for the HParams tab: a list as text; None is a number that this run does not have.

    Without a summary of the experiment, TensorBoard shows settings that differ first and sorts metrics by their tags,
    so that best/bits_per_byte is the first.
    """
    with import_errors():
        from tensorboard.plugins.hparams import metadata, plugin_data_pb2  # type: ignore[import-untyped]

    session = plugin_data_pb2.SessionStartInfo()
    for name, value in settings.items():
        if isinstance(value, bool):
            session.hparams[name].bool_value = value
        elif isinstance(value, int | float):
            session.hparams[name].number_value = value
        elif value is not None:
            session.hparams[name].string_value = value if isinstance(value, str) else write(value)
    summary = metadata.create_summary_metadata(plugin_data_pb2.HParamsPluginData(session_start_info=session))
    return {"tag": metadata.SESSION_START_INFO_TAG, "metadata": summary, "tensor": metadata.NULL_TENSOR}


def _text(tag: str, text: str) -> dict[str, Any]:
    """Encode a text, indented by four so that TensorBoard, which renders Markdown, shows it unchanged."""
    with import_errors():
        from tensorboard.plugins.text.metadata import create_summary_metadata  # type: ignore[import-untyped]

    indented = "\n".join("    " + line for line in text.split("\n")).encode(errors="replace")
    tensor = {"dtype": "DT_STRING", "tensor_shape": {}, "string_val": [indented]}
    return {"tag": tag, "metadata": create_summary_metadata(tag, ""), "tensor": tensor}


def _image(tag: str, image: Image) -> dict[str, Any]:
    height, width, channels = image.shape
    fields = {"height": height, "width": width, "colorspace": channels, "encoded_image_string": encode_png(image)}
    return {"tag": tag, "image": fields}
