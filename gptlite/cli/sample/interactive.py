"""Asking for one prompt after the other."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from gptlite.errors import UserError

MARK = "> "
N_REMEMBERED = 1000


def converse(answer: Callable[[str, int], None], say: Callable[[str], None]) -> None:
    """Answer each line, until the input ends (Ctrl-D). Ctrl-C stops an answer; an empty line asks the same again.

    answer: takes the prompt, and how many times it was asked again. What was typed can be called back with the arrow
    keys, also the next time.
    """
    say("a line is a prompt; an empty line asks for another text; Ctrl-C stops a text, Ctrl-D ends")
    prompt, again = "", 0
    with line_history(say):
        while True:
            try:
                line = input(MARK)
                prompt, again = (line, 0) if line else (prompt, again + 1)
            except EOFError:
                print()
                return
            except KeyboardInterrupt:
                print()
                continue
            except UnicodeDecodeError as error:
                say(f"error: prompt: byte {error.start}: text in {error.encoding}; type it anew")
                continue
            try:
                answer(prompt, again)
            except KeyboardInterrupt:
                say("stopped")
            except UserError as error:
                for problem in error.problems:
                    say(f"error: {problem}")


@contextlib.contextmanager
def line_history(say: Callable[[str], None]) -> Iterator[None]:
    """On a terminal: the lines typed earlier, read now and kept at the end, in the user's folder for such state.

    Where that cannot be, one line says so, and nothing else is lost.
    """
    try:
        import readline
    except ImportError:  # a Python without it: lines are read as they are
        yield
        return
    if not sys.stdin.isatty():
        yield
        return
    file = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "gptlite" / "history"
    readline.set_history_length(N_REMEMBERED)
    try:
        if file.exists():
            readline.read_history_file(file)
    except OSError as error:
        say(f"what was typed before: {file}: {error.strerror}")
    try:
        yield
    finally:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            readline.write_history_file(file)
        except OSError as error:
            say(f"what was typed is not kept: {file}: {error.strerror}")
