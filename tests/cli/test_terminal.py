"""What is printed cannot control the terminal, wherever it comes from: file names, JSON, configs, a model."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import pytest

from gptlite.cli.terminal import Console, emit, escaped, format_table, pasteable


class Terminal(io.TextIOWrapper):
    """A terminal that keeps what it is sent."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8")

    def isatty(self) -> bool:
        return True

    @property
    def shown(self) -> str:
        self.flush()
        return self.buffer.getvalue().decode()


def open_terminal(monkeypatch: pytest.MonkeyPatch, stream: str = "stdout") -> Terminal:
    """Make a stream a terminal with colours."""
    screen = Terminal()
    monkeypatch.setattr(sys, stream, screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return screen


# Control characters are those of ECMA-48: C0 (00 to 1F), DEL, C1 (80 to 9F, whose 9B is a CSI and 9D an OSC).
CONTROLS = [chr(code) for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"]
# Unicode's characters that set or end a direction of writing (UAX 9): embeddings, overrides, isolates.
DIRECTIONS = [chr(code) for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))]


def test_controls_directions_and_lone_surrogates_become_escapes_and_text_stays():
    for character in [*CONTROLS, *DIRECTIONS, "\udc9b", "\u2028"]:
        shown = escaped(f"a{character}b")
        assert shown.isascii()
        assert shown.isprintable()
        assert shown.encode().decode("unicode_escape") == f"a{character}b"
    text = "Ünïcode, 日本, \u05e9\u05dc\u05d5\u05dd, e\u0301, 👩\u200d🔬, a\u00a0b\n\tC:\\x1b"
    assert escaped(text) == text


def test_messages_are_escaped_also_from_a_signal_handler(capfd):
    Console().say("run: \x1b]0;title\x07")
    Console().say_at_once("run \x9b2J")
    assert capfd.readouterr().err == "run: \\x1b]0;title\\x07\nrun \\x9b2J\n"


def test_a_terminal_gets_results_escaped_and_a_pipe_as_they_are(capfd, monkeypatch):
    terminal = open_terminal(monkeypatch)
    emit("a\x1b[2J\n\tb\u202e\n")
    assert terminal.shown == "a\\x1b[2J\n\tb\\u202e\n"
    monkeypatch.undo()
    emit("a\x1b[2J\n\tb\u202e\n")
    assert capfd.readouterr().out == "a\x1b[2J\n\tb\u202e\n"


def test_cells_of_a_table_stay_on_their_line(monkeypatch):
    terminal = open_terminal(monkeypatch)
    emit(format_table({"run": ["\x1b[31m\n"], "state": ["ok"]}))
    assert terminal.shown == "run         state\n\\x1b[31m\\n  ok\n"


def test_a_name_of_a_file_cannot_write_escapes_or_lines_into_an_error(gptlite):
    Path("\x1b[31mx\nerror: y.txt").write_bytes(b"caf\xe9")
    result = gptlite("prepare", "-c", "nano.yaml", "--data", "*y.txt")
    assert (result.code, len(result.err.splitlines())) == (2, 2)
    assert r"/\x1b[31mx\nerror: y.txt: the text is not valid utf-8" in result.err


def test_the_progress_bar_still_moves_the_cursor(monkeypatch):
    screen = open_terminal(monkeypatch, "stderr")
    monkeypatch.setattr(os, "get_terminal_size", lambda _: os.terminal_size((80, 24)))
    console = Console()
    (sink,) = console.begin(10, 0, in_seconds=False)
    console.say("\x1b[31m")
    console.progress(5, 1.0)
    sink.close()
    assert "\r" in screen.shown
    assert "\\x1b[31m\n" in screen.shown
    assert "\x1b[31m" not in screen.shown


def test_keys_of_the_config_are_advised_as_options():
    assert pasteable("with a.b=c, x.y=1") == "with a.b=c, x.y=1"
    assert pasteable("Use train.lr=0.1 or model.n_layer=2.") == "Use --set train.lr=0.1 or --set model.n_layer=2."
