"""What a person sees of a training: a bar, and above it a line per evaluation, in which gibberish becomes words."""

from __future__ import annotations

import contextlib
import os
import time as clock
import unicodedata
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TextIO

from gptlite.formatting import abbreviated

if TYPE_CHECKING:
    from gptlite.loggers.media import Picture

# The line of the cursor and all below it. From a screen's first character on, tmux would keep what is erased.
ERASE = "\x1b[2K \x1b[J\r"
_CUT, _WRAP = "\x1b[?7l", "\x1b[?7h"  # what becomes of a line that is too long
WIDEST = 79  # a bar in line with the samples above it, which a wide terminal can narrow without cutting it
SAMPLE_COLUMNS = 60
_LEAST_BAR = 3  # columns of the bar itself; before it gets shorter, a word beside it goes
_DROPPED = ("speed", "val", "loss", "left")  # what leaves a narrow terminal, the first first
_BAR_INTERVAL = 0.1  # seconds
_PLAIN_INTERVAL = 10.0  # seconds between lines where there is no terminal, a log file say


class ConsoleSink:
    """On a terminal a progress bar with loss, val bits per byte (bpb), tokens/s and time left, and lines above it;
    elsewhere plain lines, one per evaluation and one of progress every ten seconds; `quiet`, those of evaluations.

    The way from `start` to `total` is counted in updates or, `in_seconds`, by the clock from now on.
    Nothing wraps but what is given to `say`. A stream that no longer takes anything is left alone.
    """

    def __init__(
        self,
        stream: TextIO,
        *,
        total: float,
        start: float = 0,
        in_seconds: bool = False,
        quiet: bool = False,
        now: Callable[[], float] = clock.monotonic,
    ) -> None:
        self._stream, self._total, self._now = stream, total, now
        self._step = 0 if in_seconds else int(start)
        self._zero = now() - start if in_seconds else None
        self._facts: dict[str, str] = {}
        self._pace_from: tuple[float, float] | None = None
        self._bits_per_byte: float | None = None
        self._said_header = False
        self._shows_bar = has_cursor(stream) and not quiet
        self._shows_lines = not has_cursor(stream) and not quiet
        self._last_bar, self._last_line = -_BAR_INTERVAL, -_PLAIN_INTERVAL

    def progress(self, step: int, loss: float | None = None) -> None:
        """Move the bar to `step`, and show the loss of that update."""
        if loss is not None:
            self._facts["loss"] = f"loss {loss:.3f}"
        self._step = step
        self._pace_from = self._pace_from or (self._at(), self._now())
        self._draw()

    def log(self, step: int, split: str, values: Mapping[str, float], time: Mapping[str, float]) -> None:
        if split == "val":
            self._bits_per_byte = values.get("bits_per_byte")
            if self._bits_per_byte is not None:
                self._facts["val"] = f"val {self._bits_per_byte:.3f} bpb"
        elif "loss" in values:
            self._facts["loss"] = f"loss {values['loss']:.3f}"
        if "tokens_per_second" in time and split == "train":
            self._facts["speed"] = f"{abbreviated(round(time['tokens_per_second']))} tok/s"
        self._step = step
        self._draw()
        if split == "train":
            self._plain_line()

    def sample(self, step: int, text: str) -> None:
        """One line: the step, the bits per byte of the evaluation before, and the beginning of the text."""
        width = 4 if self._zero is not None else max(4, len(str(self._total)))
        if not self._said_header:
            self.say(f"{'step':>{width}}  bits/byte  sample")
            self._said_header = True
        score = "" if self._bits_per_byte is None else f"{self._bits_per_byte:.3f}"
        start = f"{step:>{width}}  {score:>9}  "
        self.say(start + one_line(text, min(SAMPLE_COLUMNS, self._columns() - len(start))))

    def picture(self, step: int, tag: str, picture: Picture) -> None:
        """Nothing: a terminal shows text."""

    def say(self, line: str) -> None:
        """Print a line, above the bar if there is one."""
        # A terminal that cannot show a character shows "?", instead of ending the training with an error.
        encoding = self._stream.encoding or "utf-8"
        line = line.encode(encoding, "replace").decode(encoding)
        self._write(f"{ERASE if self._shows_bar else ''}{line}\n")
        self._draw(at_once=True)

    def sync(self) -> None:
        """Nothing: a terminal is not durable."""

    def close(self) -> None:
        """Leave the bar as it stands; later lines go below it."""
        if self._shows_bar:
            self._draw(at_once=True)
            self._write("\n")
        self._shows_bar = False

    def _draw(self, *, at_once: bool = False) -> None:
        """The bar, and the cursor back on its first character.

        A terminal that becomes narrower folds the line and leaves the cursor on its character: the next bar begins
        there, too, and erases whatever became of this one. It may be narrower before it says so: then the bar is cut.
        """
        if self._shows_bar and (at_once or self._now() - self._last_bar >= _BAR_INTERVAL):
            self._last_bar = self._now()
            self._write(f"{ERASE}{_CUT}{self._bar(self._columns())}{_WRAP}\r")

    def _bar(self, columns: int) -> str:
        """The bar as wide as it may be, with all the words that leave room for it."""
        from tqdm import tqdm

        form, words = "{percentage:3.0f}%|{bar}| {desc}", self._words()
        for name in _DROPPED:
            if len(f"100%|| {'  '.join(words.values())}") + _LEAST_BAR <= columns:
                break
            words.pop(name, None)
        plain = not (self._stream.encoding or "utf-8").lower().startswith("utf")
        desc = "  ".join(words.values())
        return tqdm.format_meter(self._at(), self._total, 0, columns, desc, ascii=plain, bar_format=form)

    def _at(self) -> float:
        """How far training is, in the unit of the total."""
        return self._step if self._zero is None else min(self._now() - self._zero, self._total)

    def _words(self) -> dict[str, str]:
        """What there is to say, by name: 40/100 updates or 00:40/01:40, then how it goes."""
        count = self._zero is None
        words = {"way": f"{self._step}/{self._total}" if count else f"{span(self._at())}/{span(self._total)}"}
        words |= {name: self._facts[name] for name in ("loss", "val", "speed") if name in self._facts}
        seconds = self._seconds_left()
        return words if seconds is None else {**words, "left": f"{span(seconds)} left"}

    def _seconds_left(self) -> float | None:
        if self._pace_from is None or self._at() <= self._pace_from[0]:
            return None
        done, elapsed = self._at() - self._pace_from[0], self._now() - self._pace_from[1]
        return (self._total - self._at()) * elapsed / done

    def _plain_line(self) -> None:
        due = self._now() - self._last_line >= _PLAIN_INTERVAL or self._at() == self._total
        if due and self._shows_lines:
            self._last_line = self._now()
            step = "step" if self._zero is None else f"step {self._step} "
            self.say(f"{step} {'  '.join(self._words().values())}")

    def _columns(self) -> int:
        """Columns that can be filled without wrapping."""
        with contextlib.suppress(OSError, ValueError):  # no terminal, or one that does not tell
            return min(WIDEST, (os.get_terminal_size(self._stream.fileno()).columns or 80) - 1)
        return WIDEST

    def _write(self, text: str) -> None:
        # A closed pipe or terminal must not end a training of hours: its numbers are in metrics.jsonl too.
        with contextlib.suppress(OSError):
            self._stream.write(text)
            self._stream.flush()


def has_cursor(stream: TextIO) -> bool:
    """Whether a stream is a terminal on which what stands there can be replaced."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def one_line(text: str, columns: int) -> str:
    """The beginning of a text on one line of a terminal, newlines shown, control characters gone."""
    shown, used = [], 0
    for character in text.replace("\r\n", "\n"):
        mark = "↵" if character == "\n" else character if character.isprintable() else " "
        used += 2 if unicodedata.east_asian_width(mark) in "WF" else 1
        if used > columns:
            break
        shown.append(mark)
    return "".join(shown)


def span(seconds: float) -> str:
    """59 s -> 00:59, 3600 s -> 1:00:00."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute:02}:{second:02}"
