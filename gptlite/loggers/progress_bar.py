"""The progress of training on a terminal or in a log file: tqdm's bar, and a line with a sample per evaluation."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time as clock
import unicodedata
from collections.abc import Callable, Mapping
from typing import TextIO

from gptlite.formatting import abbreviated, clock_time
from gptlite.loggers.metrics import Sink

ERASE = "\x1b[2K\r"  # the line of the cursor
MAX_COLUMNS = 79
SAMPLE_COLUMNS = 60
_LINE_INTERVAL = 10.0  # seconds


class ConsoleSink(Sink):
    """Shows progress on a stream: a bar on a terminal, elsewhere a line every ten seconds.

    Each evaluation is a line with a sample. `start` and `total` count updates or, `in_seconds`, seconds of training. A
    closed stream is ignored: the metrics are in metrics.jsonl, too.
    """

    def __init__(
        self,
        stream: TextIO,
        *,
        total: float,
        start: float = 0,
        in_seconds: bool = False,
        now: Callable[[], float] = clock.monotonic,
    ) -> None:
        self._stream, self._total, self._now = stream, total, now
        self._step = 0 if in_seconds else int(start)
        self._zero = now() - start if in_seconds else None
        self._facts = {"loss": "", "val": "", "speed": ""}
        self._pace_from: tuple[float, float] | None = None
        self._score = ""  # bits per byte of the last evaluation
        self._has_header = False
        self._last_line = -_LINE_INTERVAL
        self._bar, self._shows_lines = None, not (in_notebook() or has_cursor(stream))
        if self._shows_lines:
            return
        from tqdm.auto import tqdm

        tqdm.monitor_interval = 0  # no thread: it helps only where `miniters` adapts
        tqdm.set_lock(threading.RLock())  # the default is a semaphore that processes share
        form, columns = "{percentage:3.0f}%|{bar}| {desc}", None if in_notebook() else _columns(stream)
        with contextlib.suppress(OSError):
            self._bar = tqdm(
                total=total, initial=start, file=stream, position=0, miniters=0, bar_format=form, ncols=columns
            )

    def progress(self, step: int, loss: float | None = None) -> None:
        """Move the bar to `step` and show the loss of this update."""
        if loss is not None:
            self._facts["loss"] = f"loss {loss:.3f}"
        self._step = step
        self._pace_from = self._pace_from or (self._position(), self._now())
        self._update_bar()

    def log(self, step: int, split: str, values: Mapping[str, float], time: Mapping[str, float]) -> None:
        if split == "val" and "bits_per_byte" in values:
            self._score = f"{values['bits_per_byte']:.3f}"
            self._facts["val"] = f"val {self._score} bpb"
        if split == "train" and "loss" in values:
            self._facts["loss"] = f"loss {values['loss']:.3f}"
        if split == "train" and "tokens_per_second" in time:
            self._facts["speed"] = f"{abbreviated(round(time['tokens_per_second']))} tok/s"
        due = self._now() - self._last_line >= _LINE_INTERVAL or self._position() == self._total
        if self._shows_lines and split == "train" and due:
            self._last_line = self._now()
            prefix = "step" if self._zero is None else f"step {step} "
            self.say(f"{prefix} {'  '.join(self._status())}")

    def log_sample(self, step: int, text: str) -> None:
        """Print one line: the step, the bits per byte of its evaluation, and the beginning of the text."""
        width = 4 if self._zero is not None else max(4, len(str(self._total)))
        if not self._has_header:
            self.say(f"{'step':>{width}}  bits/byte  sample")
            self._has_header = True
        start = f"{step:>{width}}  {self._score:>9}  "
        self.say(start + preview(text, min(SAMPLE_COLUMNS, _columns(self._stream) - len(start))))

    def say(self, line: str) -> None:
        """Print a line, above the bar if there is one."""
        with contextlib.suppress(OSError):
            if self._bar is None:
                print(line, file=self._stream, flush=True)
            else:
                self._bar.write(line, file=self._stream)

    def close(self) -> None:
        """Leave the bar as it is. Later lines are printed below it."""
        if self._bar is not None:
            self._update_bar()
            with contextlib.suppress(OSError):
                self._bar.close()
        self._bar = None

    def _update_bar(self) -> None:
        """Move the bar; tqdm draws it when it is due, and cuts it on a narrow terminal."""
        if self._bar is None:
            return
        self._bar.ncols = _columns(self._stream)
        self._bar.set_description_str("  ".join(self._status()), refresh=False)
        with contextlib.suppress(OSError):
            self._bar.update(self._position() - self._bar.n)

    def _position(self) -> float:
        """Return the progress, in the unit of the total."""
        return self._step if self._zero is None else min(self._now() - self._zero, self._total)

    def _status(self) -> list[str]:
        """Return what to show, the most important first: "40/100" or "00:40/01:40", the time left, the metrics."""
        place, total = self._position(), self._total
        status = [f"{place}/{total}" if self._zero is None else f"{clock_time(place)}/{clock_time(total)}"]
        since, at = self._pace_from or (place, 0.0)
        if place > since:
            status.append(f"{clock_time((total - place) * (self._now() - at) / (place - since))} left")
        return [*status, *filter(None, self._facts.values())]


def has_cursor(stream: TextIO) -> bool:
    """Return whether a stream is a terminal on which a line can be replaced."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def in_notebook() -> bool:
    """Return whether this process runs the cells of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and "IPKernelApp" in shell.config


def _columns(stream: TextIO) -> int:
    """Return how many columns can be filled without wrapping."""
    with contextlib.suppress(OSError, ValueError):  # not a terminal, or one without a size
        return min(MAX_COLUMNS, (os.get_terminal_size(stream.fileno()).columns or 80) - 1)
    return MAX_COLUMNS


def preview(text: str, columns: int) -> str:
    """Return the beginning of a text on one line, with visible newlines and without control characters."""
    shown, used = "", 0
    for character in text.replace("\r\n", "\n"):
        mark = "↵" if character == "\n" else character if character.isprintable() else " "
        used += 2 if unicodedata.east_asian_width(mark) in "WF" else 1
        if used > columns:
            break
        shown += mark
    return shown
