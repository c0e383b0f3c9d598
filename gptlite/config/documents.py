"""Write the files in configs/ that follow from the schema: schema.json, and the comments of the shipped configs.

    python -m gptlite.config.documents      after a change of the schema, or of a value in a shipped config

A shipped config keeps its values and the comment at its top; all other comments are written here.
"""

from __future__ import annotations

import itertools
import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gptlite.config.accepted import describe_accepted
from gptlite.config.loading import builtin_folder, load_config
from gptlite.config.schema import SECTIONS, RunConfig
from gptlite.config.yaml import write
from gptlite.storage.files import replace

WIDTH = 118  # of a comment line


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 7) of a config file, by which editors complete and check it."""
    sections = {name: section.model_json_schema() for name, section in SECTIONS.items()}
    for schema in sections.values():
        for titled in (schema, *schema["properties"].values()):
            titled.pop("title", None)  # only repeats the key's name
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "gptlite config",
        "type": "object",
        "additionalProperties": False,
        "properties": sections,
    }


def schema_text() -> str:
    """Return the content of configs/schema.json."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


def commented(cfg: RunConfig, heading: str) -> str:
    """Write a config file with every key below a comment: its description, accepted values and default.

    `heading` is the comment at the top, "#" included.
    """
    return "\n".join(itertools.chain(heading.splitlines(), _commented_lines(cfg))) + "\n"


def read_heading(text: str) -> str:
    """Return the comment at the top of a config file: the lines before the first that is not a comment."""
    return "".join(itertools.takewhile(lambda line: line.startswith("#"), text.splitlines(keepends=True)))


def _commented_lines(cfg: RunConfig) -> Iterator[str]:
    for name, section in SECTIONS.items():
        yield from ("", f"# {section.__doc__}", f"{name}:")
        for key, value in getattr(cfg, name).model_dump().items():
            field = section.fields()[key]
            about = f"{field.description} ({describe_accepted(name, key)}; default {write(field.default)})"
            yield from textwrap.wrap(about, WIDTH, initial_indent="  # ", subsequent_indent="  #   ")
            yield f"  {key}: {write(value)}"


def rewrite_configs(folder: Path) -> None:
    """Write schema.json and the comments of every config in `folder`. Raises ConfigError, StorageError."""
    replace(folder / "schema.json", schema_text().encode())
    for path in sorted(folder.glob("*.yaml")):
        heading = read_heading(path.read_text("utf-8"))
        replace(path, commented(load_config(path), heading).encode())


if __name__ == "__main__":
    rewrite_configs(builtin_folder("configs"))
