"""The prompts of `gptlite sample`: from the command line, files, standard input, or one after the other."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from gptlite.cli.terminal import check_text_file
from gptlite.data.sources.charset import decode
from gptlite.errors import ConfigError, UserError
from gptlite.formatting import Say
from gptlite.storage.files import storage_errors

STANDARD_INPUT = "-"
PROMPT_MARK = "> "


def read_prompts(typed: Sequence[str] | None, files: Sequence[str] | None, encoding: str) -> list[tuple[str, str]]:
    """Return (name in messages, text) of every prompt, those of the command line first; one empty prompt by default.

    The last newline of a file or of standard input is removed, since editors and `echo` add it. ConfigError if
    standard input is asked for twice, DataError for what is not text, StorageError for unreadable files.
    """
    typed, files = typed or [], files or []
    if typed.count(STANDARD_INPUT) > 1:
        raise ConfigError("standard input can be read only once. Leave out the others.", where="--prompt -")
    texts = []
    for text in typed:
        if text == STANDARD_INPUT:
            text = _decode(sys.stdin.buffer.read(), "standard input", encoding)
        texts.append(("--prompt", text))
    for file in files:
        where = f"--prompt-file {file}"
        check_text_file(file, where)
        with storage_errors(Path(file), "read"):
            texts.append((where, _decode(Path(file).read_bytes(), where, encoding)))
    return texts or [("--prompt", "")]


def _decode(data: bytes, where: str, encoding: str) -> str:
    text = decode(data, encoding, "none", where)
    return text.removesuffix("\r\n") if text.endswith("\r\n") else text.removesuffix("\n")


def answer_prompts(answer: Callable[[str, int], None], say: Say) -> None:
    """Answer each line until the input ends. Ctrl-C stops an answer; an empty line repeats the prompt.

    answer: takes the prompt and how often it was repeated.
    """
    say(
        "Each line is a prompt. An empty line repeats the last one with another seed. Ctrl-C stops a text, Ctrl-D ends."
    )
    if sys.stdin.isatty():
        with contextlib.suppress(ImportError):  # some builds of Python have none
            import readline  # noqa: F401  # so that the arrow keys recall earlier lines
    prompt, repeats = "", 0
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
