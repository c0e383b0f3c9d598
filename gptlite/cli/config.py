"""`gptlite config`: list the shipped configs, or print one with a comment on every key."""

from __future__ import annotations

from typing import Annotated

import typer

from gptlite.cli.terminal import emit


def config(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="A config, such as small. Default: list those that are shipped."),
    ] = None,
) -> None:
    """List the shipped configs, or print a config with a comment on every key.

    To start from one: `gptlite config small > my.yaml`.
    """
    from gptlite.config.documents import commented, read_heading
    from gptlite.config.loading import SUFFIXES, builtin_folder, find_config, load_config

    if name is not None:
        path = find_config(name)
        emit(commented(load_config(path), read_heading(path.read_text(encoding="utf-8"))))
        return
    shipped = sorted(builtin_folder("configs").glob(f"*{SUFFIXES[0]}"))
    width = max(len(path.stem) for path in shipped) + 2
    for path in shipped:  # with the first sentence of its heading
        lines = read_heading(path.read_text(encoding="utf-8")).splitlines()
        words = " ".join(line.removeprefix("# ") for line in lines if "yaml-language-server" not in line)
        emit(f"{path.stem:<{width}}{words.partition('. ')[0].removesuffix('.')}.\n")
