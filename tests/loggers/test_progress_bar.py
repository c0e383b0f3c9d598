"""The progress bar: it never wraps, lines are printed above it, and no terminal can end a training."""

from __future__ import annotations

import io
import os
import re
from pathlib import Path

import pytest

from gptlite.loggers.metrics import MetricLog
from gptlite.loggers.progress_bar import ConsoleSink, preview


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return 99


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm")
    set_columns(monkeypatch, 80)
    return Terminal()


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
    return [part for part in re.split(r"[\r\n]", text) if part.strip()]


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
    terminal: Terminal, settings: dict[str, float], steps: tuple[int, int], seconds: float, percent: int, words: str
) -> None:
    clock = Clock()
    console = ConsoleSink(terminal, **settings, now=clock)
    console.log(0, "val", {"loss": 5.0, "bits_per_byte": 7.25}, {})
    train(console, clock, *steps, seconds=seconds)
    console.close()
    last = screens(terminal.getvalue())[-1]
    assert last.startswith(f" {percent}%|")
    assert last.endswith(f"| {words}  loss 2.500  val 7.250 bpb  12.3k tok/s")


def test_a_narrow_terminal_cuts_the_bar_and_shows_the_most_important_facts_first(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_columns(monkeypatch, 30)
    clock = Clock()
    console = ConsoleSink(terminal, total=1000, now=clock)
    train(console, clock, 1, 40)
    console.close()
    bar = screens(terminal.getvalue())[-1]
    assert bar.startswith("  4%|")
    assert "| 40/1000  16:00 left" in bar
    assert len(bar) == 29


def test_lines_are_printed_above_the_bar_and_after_its_end_below_it(terminal: Terminal) -> None:
    clock = Clock()
    console = ConsoleSink(terminal, total=100, now=clock)
    for i in range(3):
        train(console, clock, 10 * i + 1, 10 * i + 10)
        console.say(f"line {i}")
    console.close()
    console.say("the end")
    *lines, bar, end, rest = terminal.getvalue().split("\n")
    assert [line.split("\r")[-1] for line in lines] == ["line 0", "line 1", "line 2"]
    assert "| 30/100" in bar
    assert (end, rest) == ("the end", "")


@pytest.mark.parametrize("total", [100, 10_000_000])
@pytest.mark.parametrize("width", [40, 200])
def test_bar_and_sample_lines_do_not_wrap_and_have_at_most_79_columns(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, width: int, total: int
) -> None:
    set_columns(monkeypatch, width)
    clock = Clock()
    console = ConsoleSink(terminal, total=total, now=clock)
    console.log(0, "val", {"bits_per_byte": 12.5}, {})
    console.log_sample(0, "漢字 text\n" * 40)
    train(console, clock, 1, 100, seconds=99.0)
    console.log_sample(total, "x" * 500)
    console.close()
    widths = [sum(2 if "\u2e80" <= c <= "\uffef" else 1 for c in line) for line in screens(terminal.getvalue())]
    assert max(widths) <= min(width - 1, 79)


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


def test_a_dumb_terminal_gets_plain_lines(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    clock = Clock()
    console = ConsoleSink(terminal, total=20, now=clock)
    train(console, clock, 1, 20)
    console.close()
    assert [line.split("  ")[0] for line in terminal.getvalue().splitlines()] == ["step 10/20", "step 20/20"]


@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_closed_pipe_does_not_end_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", buffering=1, encoding="utf-8") as stream:
        stream.isatty = lambda: is_terminal  # type: ignore[method-assign]
        console = ConsoleSink(stream, total=10)
        with MetricLog.open(tmp_path, extras=[console], say=pytest.fail) as log:
            console.say("hello")
            console.progress(1, 1.0)
            log.write(1, "train", {"loss": 1.0})
            log.log_sample(1, "text")
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), writer)  # so that closing the stream can flush
    assert (tmp_path / "metrics.jsonl").read_text().count("\n") == 1


@pytest.mark.parametrize(
    ("text", "line"),
    [("a\nb", "a↵b"), ("a\x00\x1b[2Jb", "a  [2Jb"), ("漢字漢字", "漢字漢"), ("", ""), ("\u202eabc", " abc")],
)
def test_a_sample_becomes_one_line_without_control_characters(text: str, line: str) -> None:
    assert preview(text, 7) == line
