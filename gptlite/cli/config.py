"""`gptlite config`: list the shipped configs, or print one with a comment on every key."""

from __future__ import annotations

import difflib
from typing import Annotated

import typer

from gptlite.cli.terminal import emit
from gptlite.errors import ConfigError


def config(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A shipped config, such as small. Default: list them all.")
    ] = None,
) -> None:
    """List the shipped configs, or print one with its comments.

    To start from one: `gptlite config small > my.yaml`.
    """
    from gptlite.config.documents import commented, read_heading
    from gptlite.config.loading import SUFFIXES, builtin_folder, load_config

    shipped = {path.stem: path for path in sorted(builtin_folder("configs").glob(f"*{SUFFIXES[0]}"))}
    if name is None:
        width = max(map(len, shipped)) + 2
        for stem, path in shipped.items():
            emit(f"{stem:<{width}}{first_sentence(path.read_text(encoding='utf-8'))}\n")
        return
    chosen = shipped.get(name.removesuffix(SUFFIXES[0]))
    if chosen is None:
        near = difflib.get_close_matches(name, shipped, n=1)
        advice = f"Did you mean {near[0]}?" if near else f"The shipped configs are {', '.join(shipped)}."
        raise ConfigError(f"there is no shipped config of this name. {advice}", where=f"gptlite config {name}")
    emit(commented(load_config(chosen), read_heading(chosen.read_text(encoding="utf-8"))))


def first_sentence(text: str) -> str:
    """Return the first sentence of a config's leading comment; the line for editors is not part of it.

    >>> first_sentence("# yaml-language-server: $schema=x\\n# A tiny model: seconds\\n# only. For tests.\\n\\nrun:")
    'A tiny model: seconds only.'
    """
    lines = [line.removeprefix("#").strip() for line in text.partition("\n\n")[0].splitlines()]
    comment = " ".join(line for line in lines if not line.startswith("yaml-language-server"))
    sentence, stop, _ = comment.partition(". ")
    return sentence + stop.strip()
