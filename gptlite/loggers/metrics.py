"""The metric log: metrics.jsonl and samples.jsonl, cut back to a checkpoint by a resume; other sinks; the listener.

Lines of metrics.jsonl. Numbers that depend on the clock and the machine are under `time`:

    {"step": 10, "split": "train", "loss": 3.2, "lr": 0.0006, "grad_norm": 0.8, "tokens": 20480, "update_ratio": 0.002,
     "time": {"elapsed": 1.9, "tokens_per_second": 10778.9, "mfu": 0.4, "peak_mib": 300.1}}
    {"step": 10, "split": "val", "loss": 3.1, "bits_per_byte": 2.6, "perplexity": 22.2, "tokens": 20480,
     "time": {"elapsed": 1.9}}

Where the clock ends training, the time of `train` has `fractions` too: how much of it had passed at each update since
the line before. With log.attention, the entropy of attention is in every line of val, and alone in one of step 0.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from gptlite.errors import Interrupted
from gptlite.formatting import Say, counted, say_nothing
from gptlite.storage import files

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Image: TypeAlias = "npt.NDArray[np.uint8]"  # (height, width, 3): red, green, blue

METRICS, SAMPLES = LOGS = ("metrics.jsonl", "samples.jsonl")


@dataclass(frozen=True)
class LogEnd:
    """Where a log file ended at a checkpoint: its size in bytes and the sha256 of these."""

    size: int
    sha256: str

    def matches(self, content: bytes) -> bool:
        """Return whether a log begins with what it was when it ended there."""
        return len(content) >= self.size and hashlib.sha256(content[: self.size]).hexdigest() == self.sha256


class LogFile:
    """A file to which lines are appended, unbuffered, and the digest of all of them."""

    def __init__(self, path: Path) -> None:
        content = read_content(path)
        self._size, self._digest = len(content), hashlib.sha256(content)
        self._file = files.OutFile.append(path)

    def write(self, fields: Mapping[str, Any]) -> None:
        """Append a line."""
        # A lone surrogate is not valid UTF-8; it becomes an escape that JSON reads back.
        line = (json.dumps(fields, ensure_ascii=False, allow_nan=False) + "\n").encode(errors="backslashreplace")
        self._file.write(line)
        self._size += len(line)
        self._digest.update(line)

    def sync(self) -> None:
        """Return when all lines are durable."""
        self._file.sync()

    @property
    def end(self) -> LogEnd:
        return LogEnd(self._size, self._digest.hexdigest())

    def close(self) -> None:
        self._file.close()


def cut_log(path: Path, end: LogEnd | None, last_step: int, say: Say) -> None:
    """Cut a log back to where it ended at a checkpoint. A file that needs no change is not written.

    end: as the checkpoint has it. Where the file is not what it says, `say` gets a line, and what is whole is kept: the
    lines up to `last_step`.
    """
    content = read_content(path)
    if end is not None and end.matches(content):
        kept = content[: end.size]
    else:
        if end is not None:
            say(f"warning: {path} changed after it was written, or lacks lines; what is whole is kept")
        lines = content.split(b"\n")[:-1]  # without the incomplete last one that a kill leaves
        whole = [(line, fields["step"]) for line in lines if (fields := parse_line(line)) is not None]
        if len(whole) < len(lines):
            say(f"{path}: removed {counted(len(lines) - len(whole), 'damaged line')}.")
        kept = b"".join(line + b"\n" for line, step in whole if step <= last_step)
    if kept != content:
        files.replace(path, kept)


def read_content(path: Path) -> bytes:
    """Return the content of a log: nothing where there is no file."""
    with files.storage_errors(path, "read"), contextlib.suppress(FileNotFoundError):
        return path.read_bytes()
    return b""


def parse_line(line: bytes) -> dict[str, Any] | None:
    """Return the object in a line of a log; None where it is damaged or has no step."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) and type(fields.get("step")) is int else None


class Sink:
    """A destination of numbers, samples and images. What it does not show it ignores."""

    def log(self, step: int, split: str, values: Mapping[str, float], time: Mapping[str, float]) -> None:
        """Log the numbers of a split. Those in `time` depend on the clock and are not part of the result."""

    def log_sample(self, step: int, text: str) -> None:
        """Log a text that the model wrote."""

    def log_image(self, step: int, tag: str, image: Image) -> None:
        """Log an image."""

    def sync(self) -> None:
        """Return when everything so far is durable."""

    def close(self) -> None:
        """Finish. Nothing is logged afterwards."""


class Listener:
    """Receives progress messages, since the library itself never prints. This one is nobody: it shows nothing."""

    def say(self, line: str) -> None:
        """Show one line."""

    def detail(self, line: str) -> None:
        """Show one line to whoever wants to know more."""

    def event(self, kind: str, fields: Mapping[str, Any]) -> None:
        """Something happened that a program may wait for, such as the start, a checkpoint or the end."""

    def say_at_once(self, line: str) -> None:
        """Show one line from a signal handler, which may have interrupted another one."""

    def begin(self, total: float, start: float, *, in_seconds: bool) -> Sequence[Sink]:
        """Training is about to go from `start` to `total`, in updates or in seconds. Returns sinks for its metrics."""
        return ()

    def progress(self, step: int, loss: float | None = None) -> None:
        """Take note that an update was made."""


class MetricLog(contextlib.AbstractContextManager["MetricLog"]):
    """metrics.jsonl and samples.jsonl in a run's folder, one line per call, and extra sinks.

    Floats read back exactly. JSON has no nan and inf: they become null and are named under `non_finite`. Raises
    StorageError when the files of the run fail. An extra sink that fails is removed, with one line to `say`.
    """

    def __init__(self, files: Mapping[str, LogFile], extras: Sequence[Sink] = (), say: Say = say_nothing) -> None:
        """files: by name; none for every process except the main one."""
        self._files, self._extras, self._say = files, list(extras), say

    @classmethod
    def open(
        cls,
        folder: Path,
        *,
        resume_step: int = -1,
        ends: Mapping[str, LogEnd] = MappingProxyType({}),
        extras: Sequence[Sink] = (),
        say: Say,
    ) -> MetricLog:
        """Open the log of the run in `folder`: to continue after `resume_step`, where it had `ends`; -1: new."""
        for name in LOGS:
            cut_log(folder / name, ends.get(name), resume_step, say)
        return cls({name: LogFile(folder / name) for name in LOGS}, extras, say)

    @property
    def ends(self) -> dict[str, LogEnd]:
        """Where the files of the log end now, by name."""
        return {name: file.end for name, file in self._files.items()}

    def write(
        self,
        step: int,
        split: str,
        values: Mapping[str, float],
        time: Mapping[str, float] = MappingProxyType({}),
        fractions: Sequence[float] = (),
    ) -> None:
        """Log the numbers of a split. Those in `time` depend on the clock.

        fractions: how much of the time had passed at each update since the line before, only for the file.
        """
        if METRICS in self._files:
            line: dict[str, Any] = {"step": step, "split": split} | {name: _finite(x) for name, x in values.items()}
            strange = {name: str(float(x)) for name, x in values.items() if not math.isfinite(x)}
            line |= {"non_finite": strange} if strange else {}
            line |= {"time": {name: _finite(x) for name, x in time.items()}} if time else {}
            if fractions:
                line["time"]["fractions"] = fractions
            self._files[METRICS].write(line)
        self._pass_on(lambda sink: sink.log(step, split, values, time))

    def log_sample(self, step: int, text: str) -> None:
        """Log a text that the model wrote."""
        if SAMPLES in self._files:
            self._files[SAMPLES].write({"step": step, "text": text})
        self._pass_on(lambda sink: sink.log_sample(step, text))

    def log_image(self, step: int, tag: str, image: Image) -> None:
        """Log an image."""
        self._pass_on(lambda sink: sink.log_image(step, tag, image))

    def sync(self) -> None:
        """Make everything so far durable, before a checkpoint, so that no resume lacks a line."""
        for file in self._files.values():
            file.sync()
        self._pass_on(lambda sink: sink.sync())

    def close(self) -> None:
        """Close every file and sink. A second call does nothing."""
        for file in self._files.values():
            file.close()
        self._pass_on(lambda sink: sink.close())
        self._files, self._extras = {}, []

    def _pass_on(self, action: Callable[[Sink], None]) -> None:
        for sink in list(self._extras):
            try:
                action(sink)
            except Interrupted:  # by a second signal, which stops training at once
                raise
            except Exception as problem:  # with a broken protobuf, importing tensorboard raises a TypeError, say
                self._extras.remove(sink)
                self._say(f"{type(sink).__name__} is switched off: {problem}".splitlines()[0])

    def __exit__(self, *_: object) -> None:
        self.close()


def _finite(x: float) -> float | None:
    return x if math.isfinite(x) else None
