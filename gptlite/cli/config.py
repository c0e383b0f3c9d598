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

    shipped = dict(sorted((path.stem, path) for path in builtin_folder("configs").glob(f"*{SUFFIXES[0]}")))
    if name is None:
        width = max(map(len, shipped)) + 2
        for stem, path in shipped.items():  # with the first sentence of its heading
            lines = read_heading(path.read_text(encoding="utf-8")).splitlines()
            words = " ".join(line.removeprefix("# ") for line in lines if "yaml-language-server" not in line)
            emit(f"{stem:<{width}}{words.partition('. ')[0].removesuffix('.')}.\n")
        return
    chosen = shipped.get(name.removesuffix(SUFFIXES[0]))
    if chosen is None:
        near = difflib.get_close_matches(name, shipped, n=1)
        advice = f"Did you mean {near[0]}?" if near else f"The shipped configs are {', '.join(shipped)}."
        raise ConfigError(f"there is no shipped config of this name. {advice}", where=f"gptlite config {name}")
    emit(commented(load_config(chosen), read_heading(chosen.read_text(encoding="utf-8"))))
