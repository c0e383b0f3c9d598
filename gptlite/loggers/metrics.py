"""One log call, several sinks: metrics.jsonl and samples.jsonl (never lost), TensorBoard and the terminal (extras).

Lines of metrics.jsonl; numbers that depend on the clock and the machine stand under `time` only:

    {"step": 10, "split": "train", "loss": 3.2, "lr": 0.0006, "grad_norm": 0.8, "tokens": 20480, "update_ratio": 0.002,
     "time": {"elapsed": 1.9, "tokens_per_second": 10778.9, "share_of_peak": 0.4, "peak_mib": 300.1}}
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
from typing import TYPE_CHECKING, Any, Protocol

from gptlite import files
from gptlite.errors import StorageError

if TYPE_CHECKING:
    from gptlite.loggers.media import Picture

NO_TIME: Mapping[str, float] = MappingProxyType({})


class Sink(Protocol):
    """Where numbers, samples and pictures go."""

    def log(self, step: int, split: str, values: Mapping[str, float], time: Mapping[str, float]) -> None:
        """Numbers of a split at a step; those in `time` depend on the clock and are no part of the result."""

    def sample(self, step: int, text: str) -> None:
        """What the model writes at a step."""

    def picture(self, step: int, tag: str, picture: Picture) -> None:
        """Something to look at of a step; the tag says of what."""

    def sync(self) -> None:
        """Return when everything so far would survive a power cut."""

    def close(self) -> None:
        """Finish; nothing is logged after it."""


class JsonlSink:
    """metrics.jsonl and samples.jsonl in a run's folder, one line a call, each with the system when the call returns.

    Both begin with the lines up to `resume_step`; with None they begin empty. Floats read back exactly. JSON has no
    nan and inf: they are null, and named under `non_finite`.
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

    def sample(self, step: int, text: str) -> None:
        self._samples.write(_line({"step": step, "text": text}))

    def picture(self, step: int, tag: str, picture: Picture) -> None:
        """Nothing: these files are text."""

    def sync(self) -> None:
        self._metrics.sync()
        self._samples.sync()

    def close(self) -> None:
        self._metrics.close()
        self._samples.close()


def _finite(x: float) -> float | None:
    return x if math.isfinite(x) else None


def _line(fields: Mapping[str, Any]) -> bytes:
    # A lone surrogate, which UTF-8 cannot hold, becomes an escape that JSON reads back.
    return (json.dumps(fields, ensure_ascii=False, allow_nan=False) + "\n").encode(errors="backslashreplace")


def keep_lines(path: Path, last_step: int | None, warn: Callable[[str], None]) -> None:
    """Drop the lines after `last_step` (None: all), the torn last line that a kill leaves, and damaged ones.

    `warn` is told of damaged ones. A file that needs no change is left alone, and so is a missing one.
    """
    with files.storage_errors(path, "read"):
        data = path.read_bytes() if path.exists() else b""
    lines = data.split(b"\n")[:-1]
    steps = [_step_of(line) for line in lines]
    limit = -1 if last_step is None else last_step
    kept = b"".join(line + b"\n" for line, step in zip(lines, steps, strict=True) if step is not None and step <= limit)
    if damaged := steps.count(None):
        warn(f"{path}: damaged lines = {damaged}: left out")
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
    """Passes everything on to its sinks.

    An essential sink that fails is a StorageError. An extra one is dropped with one line to `warn`; training goes on.
    """

    def __init__(self, essential: Sequence[Sink], extras: Sequence[Sink], warn: Callable[[str], None]) -> None:
        self._essential, self._extras, self._warn = list(essential), list(extras), warn

    @classmethod
    def open(
        cls, folder: Path, *, resume_step: int | None, extras: Sequence[Sink] = (), warn: Callable[[str], None]
    ) -> MetricLog:
        """The log of the run in `folder`, continued after `resume_step` (None: begun anew)."""
        return cls([JsonlSink(folder, resume_step, warn)], extras, warn)

    @classmethod
    def silent(cls) -> MetricLog:
        """A log that keeps nothing: that of every process but the main one."""
        return cls([], [], lambda line: None)

    def write(self, step: int, split: str, values: Mapping[str, float], time: Mapping[str, float] = NO_TIME) -> None:
        """Log numbers of a split at a step; those in `time` depend on the clock."""
        self._each(lambda sink: sink.log(step, split, values, time))

    def sample(self, step: int, text: str) -> None:
        """Log what the model writes at a step."""
        self._each(lambda sink: sink.sample(step, text))

    def picture(self, step: int, tag: str, picture: Picture) -> None:
        """Log something to look at of a step."""
        self._each(lambda sink: sink.picture(step, tag, picture))

    def sync(self) -> None:
        """Make everything so far durable: before a checkpoint, so that no resume misses a line."""
        self._each(lambda sink: sink.sync())

    def close(self) -> None:
        """Close every sink; a second call does nothing."""
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
                self._warn(f"{type(sink).__name__} is off from here on: {problem}")

    def __exit__(self, *_: object) -> None:
        self.close()
