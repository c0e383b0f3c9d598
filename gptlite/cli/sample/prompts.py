"""Where prompts come from: the command line, files, standard input."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gptlite.data.charset import decode
from gptlite.errors import ConfigError, DataError, StorageError, located
from gptlite.formatting import counted

if TYPE_CHECKING:
    from gptlite.inference.language_model import LanguageModel

STANDARD_INPUT = "-"


def read_prompts(typed: Sequence[str] | None, files: Sequence[str] | None, encoding: str) -> list[tuple[str, str]]:
    """(what it is called in messages, text) of every prompt, those of the command line first; an empty one if there is
    none.

    Of files and standard input the last newline is left out, since editors and `echo` add it. ConfigError if standard
    input is asked for twice; DataError for what is no text.
    """
    typed, files = typed or [], files or []
    if typed.count(STANDARD_INPUT) > 1:
        raise ConfigError("--prompt = -: once, since standard input can be read once; leave the others out")
    texts = [("--prompt", _standard_input(encoding) if text == STANDARD_INPUT else text) for text in typed]
    texts += [(f"--prompt-file {file}", _text_of(_read(file), f"--prompt-file = {file}", encoding)) for file in files]
    return texts or [("--prompt", "")]


def _standard_input(encoding: str) -> str:
    return _text_of(sys.stdin.buffer.read(), "standard input", encoding)


def _read(file: str) -> bytes:
    if Path(file).is_dir():
        raise DataError(f"--prompt-file = {file}: a text file, and this is a folder; name a file in it")
    try:
        return Path(file).read_bytes()
    except FileNotFoundError:
        raise DataError(f"--prompt-file = {file}: no such file; check the path") from None
    except OSError as error:
        raise StorageError(f"--prompt-file = {file}: {error.strerror}; check the path") from None


def _text_of(data: bytes, where: str, encoding: str) -> str:
    text = decode(data, encoding, "none", where)
    return text.removesuffix("\r\n") if text.endswith("\r\n") else text.removesuffix("\n")


def known_text(model: LanguageModel, where: str, text: str, *, skip: bool, say: Callable[[str], None]) -> str:
    """A text that the model can read: as it is, or without unknown characters where these are to be skipped.

    DataError for unknown characters that are not.
    """
    if skip:
        known = model.drop_unknown(text)
        left_out = len(model.normalize(text)) - len(known)
        if left_out:
            say(f"{where}: {counted(left_out, 'unknown character')} left out")
        return known
    with located(where):
        model.encode(text)
    return text


def usable_prompt(model: LanguageModel, where: str, prompt: str, *, skip: bool, say: Callable[[str], None]) -> str:
    """A prompt that the model can read, as `known_text`; says so where the model does not see all of it."""
    prompt = known_text(model, where, prompt, skip=skip, say=say)
    length, context = len(model.encode_prompt(prompt)), model.info.model.block_size
    if length > context:
        say(f"{where} = {length} tokens: the model sees the last {context} of them (its block_size)")
    return prompt
