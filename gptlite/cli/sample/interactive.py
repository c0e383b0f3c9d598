"""`gptlite sample --interactive`: one prompt after the other."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from gptlite.errors import UserError
from gptlite.formatting import Say

PROMPT_MARK = "> "
MAX_HISTORY = 1000  # lines


def answer_prompts(answer: Callable[[str, int], None], say: Say) -> None:
    """Answer each line until the input ends. Ctrl-C stops an answer; an empty line repeats the prompt.

    answer: takes the prompt and how often it was repeated.
    """
    say(
        "Each line is a prompt. An empty line repeats the last one with another seed. Ctrl-C stops a text, Ctrl-D ends."
    )
    prompt, repeats = "", 0
    with line_history(say):
        while True:
            try:
                line = input(PROMPT_MARK)
                prompt, repeats = (line, 0) if line else (prompt, repeats + 1)
            except EOFError:
                print()
                return
            except KeyboardInterrupt:
                print()
                continue
            except UnicodeDecodeError as error:
                say(f"error: prompt: byte {error.start} is not {error.encoding}. Type the line again.")
                continue
            try:
                answer(prompt, repeats)
            except KeyboardInterrupt:
                say("stopped")
            except UserError as error:
                for problem in error.problems:
                    say(f"error: {problem}")


@contextlib.contextmanager
def line_history(say: Say) -> Iterator[None]:
    """On a terminal, recall earlier lines with the arrow keys, also those of the last session.

    A history file that cannot be read or written costs one message.
    """
    try:
        import readline
    except ImportError:  # some builds of Python have none
        yield
        return
    if not sys.stdin.isatty():
        yield
        return
    file = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "gptlite" / "history"
    readline.set_history_length(MAX_HISTORY)
    try:
        if file.exists():
            readline.read_history_file(file)
    except OSError as error:
        say(f"{file}: earlier lines could not be read ({error.strerror}).")
    try:
        yield
    finally:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            readline.write_history_file(file)
        except OSError as error:
            say(f"{file}: the lines could not be saved ({error.strerror}).")
