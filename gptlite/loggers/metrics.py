"""The metric log: each call goes to metrics.jsonl and samples.jsonl, which must succeed, and to optional sinks.

Lines of metrics.jsonl. Numbers that depend on the clock and the machine are under `time`:

    {"step": 10, "split": "train", "loss": 3.2, "lr": 0.0006, "grad_norm": 0.8, "tokens": 20480, "update_ratio": 0.002,
     "time": {"elapsed": 1.9, "tokens_per_second": 10778.9, "mfu": 0.4, "peak_mib": 300.1}}
    {"step": 10, "split": "val", "loss": 3.1, "bits_per_byte": 2.6, "perplexity": 22.2, "tokens": 20480,
     "time": {"elapsed": 1.9}}
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from gptlite import files
from gptlite.errors import StorageError
from gptlite.formatting import counted

if TYPE_CHECKING:
    from gptlite.loggers.media import Media

NO_TIME: Mapping[str, float] = MappingProxyType({})


class Sink:
    """A destination of numbers, samples and media. What it does not show it ignores."""

    def log(self, step: int, split: str, values: Mapping[str, float], time: Mapping[str, float]) -> None:
        """Log the numbers of a split. Those in `time` depend on the clock and are not part of the result."""

    def log_sample(self, step: int, text: str) -> None:
        """Log a text that the model wrote."""

    def log_media(self, step: int, tag: str, media: Media) -> None:
        """Log an image, a histogram or embeddings."""

    def sync(self) -> None:
        """Return when everything so far is durable."""

    def close(self) -> None:
        """Finish. Nothing is logged afterwards."""


class JsonlSink(Sink):
    """metrics.jsonl and samples.jsonl in a run's folder, one line per call, unbuffered.

    The lines up to `resume_step` are kept; None keeps none. Floats read back exactly. JSON has no nan and inf: they
    become null and are named under `non_finite`.
    """

    def __init__(self, folder: Path, resume_step: int | None, warn: Callable[[str], None]) -> None:
        for name in ("metrics.jsonl", "samples.jsonl"):
            keep_lines(folder / name, resume_step, warn)
        self._metrics = files.OutFile.append(folder / "metrics.jsonl")
        self._samples = files.OutFile.append(folder / "samples.jsonl")

    def log(self, step: int, split: str, values: Mapping[str, float], time: Mapping[str, float]) -> None:
        line: dict[str, Any] = {"step": step, "split": split} | {name: _finite(x) for name, x in values.items()}
        strange = {name: str(float(x)) for name, x in values.items() if not math.isfinite(x)}
        line |= {"non_finite": strange} if strange else {}
        line |= {"time": {name: _finite(x) for name, x in time.items()}} if time else {}
        self._metrics.write(_line(line))

    def log_sample(self, step: int, text: str) -> None:
        self._samples.write(_line({"step": step, "text": text}))

    def sync(self) -> None:
        self._metrics.sync()
        self._samples.sync()

    def close(self) -> None:
        self._metrics.close()
        self._samples.close()


def _finite(x: float) -> float | None:
    return x if math.isfinite(x) else None


def _line(fields: Mapping[str, Any]) -> bytes:
    # A lone surrogate is not valid UTF-8; it becomes an escape that JSON reads back.
    return (json.dumps(fields, ensure_ascii=False, allow_nan=False) + "\n").encode(errors="backslashreplace")


def keep_lines(path: Path, last_step: int | None, warn: Callable[[str], None]) -> None:
    """Remove the lines after `last_step` (None: all), the incomplete last line that a kill leaves, and damaged lines.

    Damaged lines are one line to `warn`. A file that needs no change is not written.
    """
    with files.storage_errors(path, "read"):
        data = path.read_bytes() if path.exists() else b""
    lines = data.split(b"\n")[:-1]
    steps = [_step_of(line) for line in lines]
    limit = -1 if last_step is None else last_step
    kept = b"".join(line + b"\n" for line, step in zip(lines, steps, strict=True) if step is not None and step <= limit)
    if damaged := steps.count(None):
        warn(f"{path}: removed {counted(damaged, 'damaged line')}.")
    if kept != data:
        files.replace(path, kept)


def _step_of(line: bytes) -> int | None:
    try:
        fields = json.loads(line)
    except ValueError:
        return None
    step = fields.get("step") if isinstance(fields, dict) else None
    return step if type(step) is int else None


class MetricLog(AbstractContextManager["MetricLog"]):
    """Passes every call on to its sinks.

    Raises StorageError when an essential sink fails. An extra sink that fails is removed, with one line to `warn`.
    """

    def __init__(self, essential: Sequence[Sink], extras: Sequence[Sink], warn: Callable[[str], None]) -> None:
        self._essential, self._extras, self._warn = list(essential), list(extras), warn

    @classmethod
    def open(
        cls, folder: Path, *, resume_step: int | None, extras: Sequence[Sink] = (), warn: Callable[[str], None]
    ) -> MetricLog:
        """Open the log of the run in `folder`, to continue after `resume_step` (None: to start)."""
        return cls([JsonlSink(folder, resume_step, warn)], extras, warn)

    @classmethod
    def silent(cls) -> MetricLog:
        """Return a log that keeps nothing, for every process except the main one."""
        return cls([], [], lambda line: None)

    def write(self, step: int, split: str, values: Mapping[str, float], time: Mapping[str, float] = NO_TIME) -> None:
        """Log the numbers of a split. Those in `time` depend on the clock."""
        self._each(lambda sink: sink.log(step, split, values, time))

    def log_sample(self, step: int, text: str) -> None:
        """Log a text that the model wrote."""
        self._each(lambda sink: sink.log_sample(step, text))

    def log_media(self, step: int, tag: str, media: Media) -> None:
        """Log an image, a histogram or embeddings."""
        self._each(lambda sink: sink.log_media(step, tag, media))

    def sync(self) -> None:
        """Make everything so far durable, before a checkpoint, so that no resume lacks a line."""
        self._each(lambda sink: sink.sync())

    def close(self) -> None:
        """Close every sink. A second call does nothing."""
        self._each(lambda sink: sink.close())
        self._essential, self._extras = [], []

    def _each(self, action: Callable[[Sink], None]) -> None:
        for sink in self._essential:
            action(sink)
        for sink in list(self._extras):
            try:
                action(sink)
            except (StorageError, OSError, ImportError) as problem:
                self._extras.remove(sink)
                self._warn(f"{type(sink).__name__} is switched off: {problem}")

    def __exit__(self, *_: object) -> None:
        self.close()
