"""The metric log, which goes to metrics.jsonl and samples.jsonl and to optional sinks, and who listens to a training.

Lines of metrics.jsonl. Numbers that depend on the clock and the machine are under `time`:

    {"step": 10, "split": "train", "loss": 3.2, "lr": 0.0006, "grad_norm": 0.8, "tokens": 20480, "update_ratio": 0.002,
     "time": {"elapsed": 1.9, "tokens_per_second": 10778.9, "mfu": 0.4, "peak_mib": 300.1}}
    {"step": 10, "split": "val", "loss": 3.1, "bits_per_byte": 2.6, "perplexity": 22.2, "tokens": 20480,
     "time": {"elapsed": 1.9}}

With log.attention, the entropy of attention is in every line of val, and alone in one of step 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from gptlite.errors import StorageError
from gptlite.formatting import Say, say_nothing
from gptlite.loggers.log_files import LogEnd, LogFile, cut_log

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Image: TypeAlias = "npt.NDArray[np.uint8]"  # (height, width, 3): red, green, blue

METRICS, SAMPLES = LOGS = ("metrics.jsonl", "samples.jsonl")


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


class Listener(Protocol):
    """Receives progress messages, since the library itself never prints: the terminal, a notebook, or nobody."""

    def say(self, line: str) -> None:
        """Show one line."""
        return

    def say_at_once(self, line: str) -> None:
        """Show one line from a signal handler, which may have interrupted another one."""
        return

    def begin(self, total: float, start: float, *, in_seconds: bool) -> Sequence[Sink]:
        """Training is about to go from `start` to `total`, in updates or in seconds. Returns sinks for its metrics."""
        return ()

    def progress(self, step: int, loss: float) -> None:
        """Take note that an update was made."""
        return


class SilentListener(Listener):
    """Shows nothing."""


class MetricLog(AbstractContextManager["MetricLog"]):
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
        self, step: int, split: str, values: Mapping[str, float], time: Mapping[str, float] = MappingProxyType({})
    ) -> None:
        """Log the numbers of a split. Those in `time` depend on the clock."""
        if METRICS in self._files:
            line: dict[str, Any] = {"step": step, "split": split} | {name: _finite(x) for name, x in values.items()}
            strange = {name: str(float(x)) for name, x in values.items() if not math.isfinite(x)}
            line |= {"non_finite": strange} if strange else {}
            line |= {"time": {name: _finite(x) for name, x in time.items()}} if time else {}
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
            except (StorageError, OSError, ImportError) as problem:
                self._extras.remove(sink)
                self._say(f"{type(sink).__name__} is switched off: {problem}")

    def __exit__(self, *_: object) -> None:
        self.close()


def _finite(x: float) -> float | None:
    return x if math.isfinite(x) else None
