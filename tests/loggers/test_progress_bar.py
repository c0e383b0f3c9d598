"""The progress bar: it never wraps, lines are printed above it, and no terminal can end a training."""

from __future__ import annotations

import io
import os
import pty
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest

from gptlite.loggers.metrics import MetricLog
from gptlite.loggers.progress_bar import ConsoleSink, preview


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


class Screen(io.StringIO):
    """A terminal emulator: it wraps or cuts long lines and knows the escape sequences of the bar. When `columns`
    changes, it wraps every line again; the cursor stays on its character."""

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.columns, self.lines, self.line, self.place, self.wraps = columns, [""], 0, 0, True

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return 99

    def write(self, text: str) -> int:
        for part in re.findall(r"\x1b\[\??\w+|[^\x1b]", text):
            before, start = self.lines[self.line], self.place - self.place % self.columns
            if part == "\x1b[2K":
                self.lines[self.line] = before[:start] + " " * self.columns + before[start + self.columns :]
            elif part == "\x1b[J":
                self.lines[self.line :] = [before[: self.place]]
            elif part in ("\x1b[?7l", "\x1b[?7h"):
                self.wraps = part.endswith("h")
            elif part == "\r":
                self.place = start
            elif part == "\n":
                self.line, self.place = self.line + 1, 0
                self.lines += [""] * (self.line == len(self.lines))
            else:
                self.lines[self.line] = before[: self.place] + part + before[self.place + 1 :]
                self.place += self.wraps or self.place + 1 < start + self.columns
        return len(text)

    def rows(self) -> list[str]:
        folded = [line[i : i + self.columns] for line in self.lines for i in range(0, len(line), self.columns)]
        return [row.rstrip() for row in folded if row.strip()]


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    monkeypatch.setenv("TERM", "xterm")
    return Screen(80)


def set_columns(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setattr(os, "get_terminal_size", lambda fd: os.terminal_size((columns, 24)))


class Clock:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def train(console: ConsoleSink, clock: Clock, first: int, last: int, seconds: float = 1.0) -> None:
    for step in range(first, last + 1):
        clock.seconds += seconds
        console.progress(step, 3.0)
        if step % 10 == 0:
            console.log(step, "train", {"loss": 2.5}, {"tokens_per_second": 12345.6})


def screens(text: str) -> list[str]:
    """Every version of every line that a terminal showed."""
    return [part for part in re.split(r"[\r\n]|\x1b\[\??\w+", text) if part.strip()]


@pytest.mark.parametrize(
    ("settings", "steps", "seconds", "percent", "words"),
    [
        ({"total": 100}, (1, 40), 1.0, 40, "40/100  01:00 left"),
        ({"total": 180.0, "start": 20.0, "in_seconds": True}, (1, 70), 1.0, 50, "01:30/03:00  01:30 left"),
        ({"total": 100, "start": 60}, (61, 80), 2.0, 80, "80/100  00:40 left"),
    ],
    ids=["of steps", "of the clock, under max_minutes", "of a resumed run, whose pace is that of this session"],
)
def test_the_bar_shows_progress_time_left_loss_bits_per_byte_and_speed(
    settings: dict[str, float], steps: tuple[int, int], seconds: float, percent: int, words: str
) -> None:
    stream, clock = Terminal(), Clock()
    console = ConsoleSink(stream, **settings, now=clock)
    console.log(0, "val", {"loss": 5.0, "bits_per_byte": 7.25}, {})
    train(console, clock, *steps, seconds=seconds)
    console.close()
    last = screens(stream.getvalue())[-1]
    assert last.startswith(f" {percent}%|")
    assert last.endswith(f"| {words}  loss 2.500  val 7.250 bpb  12.3k tok/s")


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (200, "40/1000  16:00 left  loss 2.500  val 7.250 bpb  12.3k tok/s"),
        (80, "40/1000  16:00 left  loss 2.500  val 7.250 bpb  12.3k tok/s"),
        (60, "40/1000  16:00 left  loss 2.500  val 7.250 bpb"),
        (50, "40/1000  16:00 left  loss 2.500"),
        (30, "40/1000  16:00 left"),
        (25, "40/1000"),
    ],
)
def test_a_narrow_terminal_drops_the_least_important_fields(
    screen: Screen, monkeypatch: pytest.MonkeyPatch, columns: int, words: str
) -> None:
    screen.columns, clock = columns, Clock()
    set_columns(monkeypatch, columns)
    console = ConsoleSink(screen, total=1000, now=clock)
    console.log(0, "val", {"bits_per_byte": 7.25}, {})
    train(console, clock, 1, 40)
    console.close()
    (bar,) = screen.rows()
    assert bar.startswith("  4%|")
    assert bar.endswith(f"| {words}")
    assert len(bar) == min(columns, 80) - 1


@pytest.mark.parametrize("late", [False, True], ids=["size-known", "size-known-late"])
def test_a_resized_terminal_shows_one_bar_and_every_line_above_it(
    screen: Screen, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    clock = Clock()
    console = ConsoleSink(screen, total=1000, now=clock)
    widths = (100, 81, 79, 62, 50, 70, 45, 200)
    for step, columns in enumerate(widths):
        screen.columns = columns
        set_columns(monkeypatch, widths[step - late])
        train(console, clock, 10 * step + 1, 10 * step + 10)
        console.say(f"line {step}")
        *lines, bar = screen.rows()
        assert lines == [f"line {i}" for i in range(step + 1)]
        assert f"| {10 * step + 10}/1000" in bar
    console.close()
    console.say("the end")
    assert screen.rows()[-1] == "the end"
    assert "| 80/1000" in screen.rows()[-2]


@pytest.mark.parametrize("total", [100, 10_000_000])
def test_bar_and_sample_lines_have_at_most_79_columns(total: int) -> None:
    stream, clock = Terminal(), Clock()
    console = ConsoleSink(stream, total=total, now=clock)
    console.log(0, "val", {"bits_per_byte": 12.5}, {})
    console.log_sample(0, "漢字 text\n" * 40)
    train(console, clock, 1, 100, seconds=99.0)
    console.log_sample(total, "x" * 500)
    console.close()
    assert max(columns(line) for line in screens(stream.getvalue())) <= 79


def columns(text: str) -> int:
    return sum(2 if "\u2e80" <= c <= "\uffef" else 1 for c in text)


@pytest.fixture
def narrow() -> Iterator[tuple[TextIO, int]]:
    """A real terminal of 40 columns, and the end to read it from."""
    import fcntl
    import struct
    import termios

    reader, writer = pty.openpty()
    fcntl.ioctl(writer, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))
    with os.fdopen(writer, "w", encoding="utf-8") as stream:
        yield stream, reader
    os.close(reader)


def test_lines_do_not_wrap_on_a_narrow_terminal(narrow: tuple[TextIO, int]) -> None:
    stream, reader = narrow
    clock = Clock()
    console = ConsoleSink(stream, total=1000, now=clock)
    console.log(0, "val", {"bits_per_byte": 2.5}, {})
    console.log_sample(0, "x" * 100)
    train(console, clock, 1, 20)
    console.close()
    console.say("end")
    data = b""
    while not data.endswith(b"end\r\n"):  # terminals return data in pieces
        data += os.read(reader, 65536)
    shown = screens(data.decode())
    assert "   0      2.500  " + "x" * 22 in shown
    assert max(map(len, shown)) <= 39


def test_an_evaluation_is_one_line_under_one_header() -> None:
    stream = io.StringIO()
    console = ConsoleSink(stream, total=1000)
    for step, score in ((0, 8.0), (250, 2.125)):
        console.log(step, "val", {"bits_per_byte": score}, {})
        console.log_sample(step, "To be,\tor\r\nnot\x1b[31m " + "y" * 80)
    console.close()
    text = "To be, or↵not [31m " + "y" * 41
    assert len(text) == 60
    assert stream.getvalue().splitlines() == [
        "step  bits/byte  sample",
        f"   0      8.000  {text}",
        f" 250      2.125  {text}",
    ]


def test_a_log_file_gets_a_line_every_ten_seconds() -> None:
    stream, clock = io.StringIO(), Clock()
    console = ConsoleSink(stream, total=100, now=clock)
    train(console, clock, 1, 100, seconds=0.6)  # a log point every 6 seconds
    console.close()
    shown = stream.getvalue().splitlines()
    assert shown[0] == "step 10/100  00:54 left  loss 2.500  12.3k tok/s"
    assert [line.split()[1] for line in shown] == ["10/100", "30/100", "50/100", "70/100", "90/100", "100/100"]
    assert "\r" not in stream.getvalue()


def test_a_dumb_terminal_gets_plain_lines(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    clock = Clock()
    console = ConsoleSink(screen, total=20, now=clock)
    train(console, clock, 1, 20)
    console.close()
    assert [line.split("  ")[0] for line in screen.rows()] == ["step 10/20", "step 20/20"]


def test_a_closed_pipe_does_not_end_training(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", buffering=1, encoding="utf-8") as stream:
        console = ConsoleSink(stream, total=10)
        with MetricLog.open(tmp_path, resume_step=None, extras=[console], say=pytest.fail) as log:
            console.say("hello")
            console.progress(1, 1.0)
            log.write(1, "train", {"loss": 1.0})
            log.log_sample(1, "text")
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), writer)  # so that closing the stream can flush
    assert (tmp_path / "metrics.jsonl").read_text().count("\n") == 1


def test_characters_that_the_stream_cannot_encode_become_question_marks(tmp_path: Path) -> None:
    with (tmp_path / "out").open("w", encoding="ascii") as stream:
        console = ConsoleSink(stream, total=10)
        console.log_sample(0, "grüß\n")
        console.close()
    assert (tmp_path / "out").read_text().splitlines()[1].endswith("gr???")


def test_the_bar_is_ascii_where_the_stream_is() -> None:
    class Ascii(io.TextIOWrapper):
        def isatty(self) -> bool:
            return True

    stream, clock = Ascii(io.BytesIO(), encoding="ascii"), Clock()
    console = ConsoleSink(stream, total=20, now=clock)
    train(console, clock, 1, 10)
    console.close()
    bar = screens(stream.buffer.getvalue().decode("ascii"))[-1]
    assert re.match(r" 50%\|#+[# ]+\| 10/20", bar)


@pytest.mark.parametrize(
    ("text", "line"),
    [("a\nb", "a↵b"), ("a\x00\x1b[2Jb", "a  [2Jb"), ("漢字漢字", "漢字漢"), ("", ""), ("\u202eabc", " abc")],
)
def test_a_sample_becomes_one_line_without_control_characters(text: str, line: str) -> None:
    assert preview(text, 7) == line
