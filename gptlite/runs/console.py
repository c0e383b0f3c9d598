"""What a person sees of a training: a bar, and above it a line per evaluation, in which gibberish becomes words."""

from __future__ import annotations

import contextlib
import os
import time as clock
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, NoReturn, TextIO

if TYPE_CHECKING:
    from tqdm import tqdm

    from gptlite.runs.pictures import Picture

SAMPLE_COLUMNS = 60
_PLAIN_INTERVAL = 10.0  # seconds between lines where there is no terminal, a log file say


class ConsoleSink:
    """On a terminal a progress bar with loss, val bits per byte (bpb), tokens/s and time left, and lines above it;
    elsewhere plain lines, one per evaluation and one of progress every ten seconds.

    The way from `start` to `total` is counted in updates or, `in_seconds`, by the clock from now on.
    Nothing wraps at 80 columns but what is given to `say`. A stream that no longer takes anything is left alone.
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
        self._said_header = self._closed = False
        self._last_plain = -_PLAIN_INTERVAL
        self._bar: tqdm[NoReturn] | None = None

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
            self._facts["speed"] = f"{_short(time['tokens_per_second'])} tok/s"
        self._step = step
        self._draw()
        if split == "train":
            self._plain_line()

    def sample(self, step: int, text: str) -> None:
        """One line: the step, the bits per byte of the evaluation before, and the beginning of the text."""
        width = max(4, len(str(self._total)))
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
        with self._careful():
            # A terminal that cannot show a character shows "?", instead of ending the training with an error.
            encoding = self._stream.encoding or "utf-8"
            line = line.encode(encoding, "replace").decode(encoding)
            if self._bar is not None:
                self._bar.write(line, file=self._stream)
            else:
                self._stream.write(line + "\n")
                self._stream.flush()

    def sync(self) -> None:
        """Nothing: a terminal is not durable."""

    def close(self) -> None:
        """Leave the bar as it stands; later lines go below it."""
        if self._bar is not None:
            self._draw(final=True)
        with self._careful():
            bar, self._bar, self._closed = self._bar, None, True
            if bar is not None:
                bar.close()

    def _draw(self, *, final: bool = False) -> None:
        with self._careful():
            if self._closed or not self._stream.isatty():
                return
            bar = self._bar = self._new_bar() if self._bar is None else self._bar
            bar.ncols = self._columns()
            bar.set_description_str("  ".join([self._way(), *self._shown()]), refresh=final)
            bar.update(self._at() - bar.n)

    def _new_bar(self) -> tqdm[NoReturn]:
        from tqdm import tqdm

        form = "{percentage:3.0f}%|{bar}| {desc}"
        return tqdm(total=self._total, initial=self._at(), file=self._stream, bar_format=form, ncols=self._columns())

    def _at(self) -> float:
        """How far training is, in the unit of the total."""
        return self._step if self._zero is None else min(self._now() - self._zero, self._total)

    def _way(self) -> str:
        """40/100 updates, or 00:40/01:40."""
        if self._zero is None:
            return f"{self._step}/{self._total}"
        return f"{span(self._at())}/{span(self._total)}"

    def _shown(self) -> Iterator[str]:
        yield from (self._facts[name] for name in ("loss", "val", "speed") if name in self._facts)
        seconds = self._seconds_left()
        if seconds is not None:
            yield f"{span(seconds)} left"

    def _seconds_left(self) -> float | None:
        if self._pace_from is None or self._at() <= self._pace_from[0]:
            return None
        done, elapsed = self._at() - self._pace_from[0], self._now() - self._pace_from[1]
        return (self._total - self._at()) * elapsed / done

    def _plain_line(self) -> None:
        due = self._now() - self._last_plain >= _PLAIN_INTERVAL or self._at() == self._total
        if due and not self._stream.isatty():
            self._last_plain = self._now()
            step = "step" if self._zero is None else f"step {self._step} "
            self.say("  ".join([f"{step} {self._way()}", *self._shown()]))

    def _columns(self) -> int:
        """Columns that can be filled without wrapping."""
        with contextlib.suppress(OSError, ValueError):  # no terminal, or one that does not tell
            return (os.get_terminal_size(self._stream.fileno()).columns or 80) - 1
        return 79

    @contextlib.contextmanager
    def _careful(self) -> Iterator[None]:
        # A closed pipe or terminal must not end a training of hours: its numbers are in metrics.jsonl too.
        with contextlib.suppress(OSError):
            yield


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


def _short(number: float) -> str:
    """Three or four digits: 940, 10.8k, 1.23M."""
    for limit, divisor, form in ((1e3, 1, ".0f"), (1e4, 1e3, ".2f"), (1e5, 1e3, ".1f"), (1e6, 1e3, ".0f")):
        if number < limit:
            return f"{number / divisor:{form}}{'k' if divisor > 1 else ''}"
    return f"{number / 1e6:.2f}M"


def span(seconds: float) -> str:
    """59 s -> 00:59, 3600 s -> 1:00:00."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute:02}:{second:02}"
