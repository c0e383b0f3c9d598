"""The progress of training on a terminal or in a log file: a bar, and a line with a sample per evaluation."""

from __future__ import annotations

import contextlib
import os
import time as clock
import unicodedata
from collections.abc import Callable, Mapping
from typing import TextIO

from gptlite.formatting import abbreviated, clock_time
from gptlite.loggers.metrics import Sink

ERASE = "\x1b[2K \x1b[J\r"  # the line of the cursor and all below; without the space, tmux keeps a whole erased screen
_NO_WRAP, _WRAP = "\x1b[?7l", "\x1b[?7h"
MAX_COLUMNS = 79  # the width of the sample lines
SAMPLE_COLUMNS = 60
_MIN_BAR = 3  # columns
_BAR_INTERVAL = 0.1  # seconds
_LINE_INTERVAL = 10.0  # seconds


class ConsoleSink(Sink):
    """Shows progress on a stream: a bar on a terminal, elsewhere a line every ten seconds.

    Each evaluation is a line with a sample. `start` and `total` count updates or, `in_seconds`, seconds of training. A
    closed stream is ignored, and characters that the stream cannot encode become "?".
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
        self._facts: dict[str, str] = {}
        self._pace_from: tuple[float, float] | None = None
        self._bits_per_byte: float | None = None
        self._has_header = False
        self._shows_lines, self._shows_bar = not has_cursor(stream), has_cursor(stream)
        self._last_line, self._drawn_at = -_LINE_INTERVAL, now()

    def progress(self, step: int, loss: float | None = None) -> None:
        """Move the bar to `step` and show the loss of this update."""
        if loss is not None:
            self._facts["loss"] = f"loss {loss:.3f}"
        self._step = step
        self._pace_from = self._pace_from or (self._position(), self._now())
        self._draw_when_due()

    def log(self, step: int, split: str, values: Mapping[str, float], time: Mapping[str, float]) -> None:
        self._step = step
        if split == "val":
            self._bits_per_byte = values.get("bits_per_byte")
            if self._bits_per_byte is not None:
                self._facts["val"] = f"val {self._bits_per_byte:.3f} bpb"
        elif "loss" in values:
            self._facts["loss"] = f"loss {values['loss']:.3f}"
        if "tokens_per_second" in time and split == "train":
            self._facts["speed"] = f"{abbreviated(round(time['tokens_per_second']))} tok/s"
        self._draw_when_due()
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
        score = "" if self._bits_per_byte is None else f"{self._bits_per_byte:.3f}"
        start = f"{step:>{width}}  {score:>9}  "
        self.say(start + preview(text, min(SAMPLE_COLUMNS, _columns(self._stream) - len(start))))

    def say(self, line: str) -> None:
        """Print a line, above the bar if there is one."""
        self._write(f"{ERASE}{line}\n" if self._shows_bar else f"{line}\n")
        self._draw()

    def close(self) -> None:
        """Leave the bar as it is. Later lines are printed below it."""
        if self._shows_bar:
            self._draw()
            self._write("\n")
        self._shows_bar = False

    def _draw_when_due(self) -> None:
        if self._shows_bar and self._now() - self._drawn_at >= _BAR_INTERVAL:
            self._draw()

    def _draw(self) -> None:
        """Draw the bar in the place of the one before.

        The cursor is left on its first character, and everything from there on is erased: where a terminal becomes
        narrower, the bar is folded, and nothing of it may stay.
        """
        if not self._shows_bar:
            return
        self._drawn_at = self._now()
        columns, status = _columns(self._stream), self._status()
        while len(status) > 1 and len(f"100%|| {'  '.join(status)}") + _MIN_BAR > columns:
            status.pop()
        done = min(self._position() / self._total, 1.0) if self._total else 1.0
        shown = "  ".join(status)
        width = max(0, columns - len(f"100%|| {shown}"))
        full = "█" if _encodable("█", self._stream) == "█" else "#"
        bar = (full * round(done * width)).ljust(width)
        self._write(f"{ERASE}{_NO_WRAP}{100 * done:3.0f}%|{bar}| {shown}{_WRAP}\r")

    def _write(self, text: str) -> None:
        """Print a text. A closed pipe or an unknown character stops nothing: the metrics are in metrics.jsonl too."""
        with contextlib.suppress(OSError):
            self._stream.write(_encodable(text, self._stream))
            self._stream.flush()

    def _position(self) -> float:
        """Return the progress, in the unit of the total."""
        return self._step if self._zero is None else min(self._now() - self._zero, self._total)

    def _status(self) -> list[str]:
        """Return what to show, the most important first: "40/100" or "00:40/01:40", the time left, the metrics."""
        done = f"{self._step}/{self._total}"
        if self._zero is not None:
            done = f"{clock_time(self._position())}/{clock_time(self._total)}"
        seconds = self._seconds_left()
        left = [] if seconds is None else [f"{clock_time(seconds)} left"]
        return [done, *left, *(self._facts[name] for name in ("loss", "val", "speed") if name in self._facts)]

    def _seconds_left(self) -> float | None:
        if self._pace_from is None or self._position() <= self._pace_from[0]:
            return None
        done, elapsed = self._position() - self._pace_from[0], self._now() - self._pace_from[1]
        return (self._total - self._position()) * elapsed / done


def has_cursor(stream: TextIO) -> bool:
    """Return whether a stream is a terminal on which a line can be replaced."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def preview(text: str, columns: int) -> str:
    """Return the beginning of a text on one line, with visible newlines and without control characters."""
    shown, used = [], 0
    for character in text.replace("\r\n", "\n"):
        mark = "↵" if character == "\n" else character if character.isprintable() else " "
        used += 2 if unicodedata.east_asian_width(mark) in "WF" else 1
        if used > columns:
            break
        shown.append(mark)
    return "".join(shown)


def _columns(stream: TextIO) -> int:
    """Return how many columns can be filled without wrapping."""
    with contextlib.suppress(OSError, ValueError):  # not a terminal, or one without a size
        return min(MAX_COLUMNS, (os.get_terminal_size(stream.fileno()).columns or 80) - 1)
    return MAX_COLUMNS


def _encodable(text: str, stream: TextIO) -> str:
    """Return the text with "?" for each character that the stream has no bytes for."""
    encoding = stream.encoding or "utf-8"
    return text.encode(encoding, "replace").decode(encoding)
