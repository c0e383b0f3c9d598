"""The files in configs/ that follow from the schema: schema.json, and the comments of the shipped configs.

    python -m gptlite.config.documents      writes them again: after a change of the schema, or of a shipped value

A shipped config keeps its values and the comment at its top; the rest of its comments are written here.
"""

from __future__ import annotations

import itertools
import json
import textwrap
from collections.abc import Iterator
from pathlib import Path

from gptlite.config.accepted import SECTIONS, accepted
from gptlite.config.finding import builtin_folder
from gptlite.config.loading import json_schema, load_config
from gptlite.config.schema import RunConfig
from gptlite.config.yaml import write
from gptlite.files import replace

SCHEMA_LINE = "# yaml-language-server: $schema=schema.json"
WIDTH = 118  # of a comment line


def schema_text() -> str:
    """The content of configs/schema.json."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


def commented(cfg: RunConfig, heading: str) -> str:
    """A config file with every key, each below a comment with its meaning, accepted values and default.

    `heading` is the comment at its top, as it stands in a file.
    """
    return "\n".join(itertools.chain(heading.splitlines(), _commented_lines(cfg))) + "\n"


def heading_of(text: str) -> str:
    """The comment at the top of a config file: its lines up to the first that is not a comment."""
    return "".join(itertools.takewhile(lambda line: line.startswith("#"), text.splitlines(keepends=True)))


def _commented_lines(cfg: RunConfig) -> Iterator[str]:
    for name, section in SECTIONS.items():
        yield from ("", f"# {section.__doc__}", f"{name}:")
        for key, value in getattr(cfg, name).model_dump().items():
            field = section.model_fields[key]
            about = f"{field.description} ({accepted(name, key)}; default {write(field.default)})"
            yield from textwrap.wrap(about, WIDTH, initial_indent="  # ", subsequent_indent="  #   ")
            yield f"  {key}: {write(value)}"


def rewrite_configs(folder: Path) -> None:
    """Write schema.json and the comments of every config in `folder`. Raises ConfigError, StorageError."""
    replace(folder / "schema.json", schema_text().encode())
    for path in sorted(folder.glob("*.yaml")):
        heading = heading_of(path.read_text("utf-8"))
        replace(path, commented(load_config(path), heading).encode())


if __name__ == "__main__":
    rewrite_configs(builtin_folder("configs"))
