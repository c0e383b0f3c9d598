"""TensorBoard: event files, and the sinks that write the folders of a run. docs/tensorboard.md lists the tags.

    runs/small/tb/            the steps are updates, the times those of training: without pauses, from the start on
    runs/.baselines/story.txt-3fa2c1/PPMd 2.543/    val/bits_per_byte is 2.543 over the whole of the longest run

All runs on a text share its baseline. Its folder may be removed; the next run writes it again. Files are written with
tensorboard's own record writer and protocol buffers, without torch.
"""

from __future__ import annotations

import io
import math
import re
import socket
import time as clock
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gptlite.config.yaml import Value, write
from gptlite.loggers.metrics import Image, Sink
from gptlite.storage import files

Values = Sequence[Any]  # a Summary.Value, or its fields: tag, and what it holds

_EVENT_FILE = re.compile(r"events\.out\.tfevents\.(\d+)\.")
_POINT_FILE = re.compile(r"events\.out\.tfevents\.\d+\.\d+")  # of a baseline
BASELINES = ".baselines"  # beside the runs, whose names cannot begin with a dot
BASELINE_TAG = "val/bits_per_byte"


def encode_event(at: float, **fields: Any) -> bytes:
    """Return the bytes of an event at this time, for one write call: a kill then leaves all of it or nothing."""
    from tensorboard.compat.proto.event_pb2 import Event  # type: ignore[import-untyped]
    from tensorboard.summary.writer.record_writer import RecordWriter  # type: ignore[import-untyped]

    file = io.BytesIO()
    RecordWriter(file).write(Event(wall_time=at, **fields).SerializeToString())
    return file.getvalue()


class TensorBoardSink(Sink):
    """Curves, texts and images in event files below `folder`. Nothing is written before the first call.

    started_at: of the run, in seconds since 1970. config: shown as text. hparams: shown in the HParams tab. A resumed
    run gives the step, seconds and best score of its checkpoint; later events are void. Without resume_step all earlier
    ones are.

    Each session adds a file. It begins by voiding all events from its first step on in earlier files, so that curves
    are unbroken and have no step twice. Events are written in the caller's thread, so that errors are raised at once.
    """

    def __init__(
        self,
        folder: Path,
        *,
        started_at: float = 0.0,
        config: str = "",
        hparams: Mapping[str, Value] | None = None,
        resume_step: int = -1,
        resume_seconds: float = 0.0,
        best_bits_per_byte: float | None = None,
    ) -> None:
        self._config, self._hparams = config, hparams
        self._best = math.inf if best_bits_per_byte is None else best_bits_per_byte
        self._started_at, self._at = started_at, started_at + resume_seconds
        self._folder, self._first_step = folder, resume_step + 1
        self._file: files.OutFile | None = None

    def log(self, step: int, split: str, values: Mapping[str, float], time: Mapping[str, float]) -> None:
        self._at = self._started_at + time["elapsed"] if "elapsed" in time else self._at
        scalars = {f"{split}/{name}": x for name, x in values.items() if name != "tokens"}  # a straight line
        # TensorBoard sorts by name, so these come after train and val. The events have the time that has elapsed.
        scalars |= {f"workload/{name}": x for name, x in time.items() if name != "elapsed"}
        if split == "val" and "bits_per_byte" in values:
            self._best = min(self._best, values["bits_per_byte"])
            scalars["best/bits_per_byte"] = self._best
        self._write(step, [_scalar(tag, x) for tag, x in scalars.items()])

    def log_sample(self, step: int, text: str) -> None:
        self._write(step, [_text("samples", text)])

    def log_image(self, step: int, tag: str, image: Image) -> None:
        self._write(step, [_image(tag, image)])

    def sync(self) -> None:
        if self._file:
            self._file.sync()

    def close(self) -> None:
        if self._file:
            self._file.close()

    def _write(self, step: int, values: Values) -> None:
        if values:
            self._open().write(encode_event(self._at, step=step, summary={"value": values}))

    def _open(self) -> files.OutFile:
        """Return the file, which the first call makes."""
        if self._file is not None:
            return self._file
        version = encode_event(self._at, file_version="brain.Event:2")  # or an error of an import, before any file
        files.make_dirs(self._folder)
        # Readers sort files by name, so a later file needs a later stamp, even within a second or after the clock was
        # set back.
        stamps = [int(found[1]) for path in self._folder.iterdir() if (found := _EVENT_FILE.match(path.name))]
        stamp = max([int(clock.time()), *(earlier + 1 for earlier in stamps)])
        file = files.OutFile.create(self._folder / f"events.out.tfevents.{stamp:010d}.{socket.gethostname()}")
        files.sync_dir(self._folder)
        # The first file needs START too: TensorBoard does not treat the first START that it reads as a restart.
        file.write(version + encode_event(self._at, step=self._first_step, session_log={"status": "START"}))
        self._file = file
        if self._first_step == 0 or not stamps:
            config = [_text("config", self._config)] if self._config else []
            self._write(0, [*config, *([] if self._hparams is None else [_hparams(self._hparams)])])
        return file


def _hparams(settings: Mapping[str, Value]) -> Any:
    """Encode the settings of a run for the HParams tab: a list as text; None is a number that this run does not have.

    Without a summary of the experiment, TensorBoard shows settings that differ first and sorts metrics by their tags,
    so that best/bits_per_byte is the first.
    """
    from tensorboard.plugins.hparams.summary_v2 import hparams_pb  # type: ignore[import-untyped]

    known = {name: write(x) if isinstance(x, list) else x for name, x in settings.items() if x is not None}
    return hparams_pb(known, trial_id="", start_time_secs=0.0).value[0]


def _scalar(tag: str, x: float) -> dict[str, Any]:
    return {"tag": tag, "simple_value": float(x)}


def _text(tag: str, text: str) -> Any:
    """Encode a text, indented by four so that TensorBoard, which renders Markdown, shows it unchanged."""
    from tensorboard.plugins.text.summary_v2 import text_pb  # type: ignore[import-untyped]

    indented = "\n".join("    " + line for line in text.split("\n")).encode(errors="replace")
    return text_pb(tag, indented).value[0]


def _image(tag: str, image: Image) -> dict[str, Any]:
    import PIL.Image

    file = io.BytesIO()
    PIL.Image.fromarray(image).save(file, "PNG")
    height, width, channels = image.shape
    fields = {"height": height, "width": width, "colorspace": channels, "encoded_image_string": file.getvalue()}
    return {"tag": tag, "image": fields}


class BaselineSink(Sink):
    """The best baseline of a text as a level line on the charts of all runs on it.

    It gets the length of the run: at its first evaluation, whenever it has doubled, and at its end.
    """

    def __init__(self, folder: Path, name: str, bits_per_byte: float, started_at: float) -> None:
        self._line = folder / f"{name} {bits_per_byte:.3f}"
        self._value, self._started_at = bits_per_byte, started_at
        self._length = self._last = 0
        self._elapsed = 0.0

    def log(self, step: int, split: str, values: Mapping[str, float], time: Mapping[str, float]) -> None:
        if split == "val":
            self._last, self._elapsed = step, time.get("elapsed", self._elapsed)
            if step >= 2 * self._length:
                self._extend()

    def close(self) -> None:
        if self._last > self._length:
            self._extend()

    def _extend(self) -> None:
        self._length = self._last
        files.make_dirs(self._line)
        written = sorted(path.name for path in self._line.iterdir() if _POINT_FILE.fullmatch(path.name))
        # The name of the first file has the time of the line's beginning, which the others count from.
        zero = float(written[0].rpartition(".")[2]) if written else round(self._started_at)
        for end, at in ((0, zero), (self._last, zero + self._elapsed)):
            name = f"events.out.tfevents.{end:010d}.{zero:.0f}"
            if name > max(written, default=""):
                values = [_scalar(BASELINE_TAG, self._value)]
                point = encode_event(at, step=end, summary={"value": values})
                files.replace(self._line / name, encode_event(at, file_version="brain.Event:2") + point)
