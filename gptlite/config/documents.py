"""Write the files in configs/ that name every key of the schema: schema.json, small.yaml and lesson-base.yaml.

    python -m gptlite.config.documents      after a change of the schema, or of a value in one of these

The two configs keep their values and the comment at their top; small.yaml gets a comment for every key.
"""

from __future__ import annotations

import itertools
import json
import textwrap
from pathlib import Path
from typing import Any

from gptlite.config.keys import describe_accepted
from gptlite.config.loading import EXTENDS, builtin_folder, dump_config, load_config
from gptlite.config.schema import SECTIONS, RunConfig
from gptlite.config.yaml import write
from gptlite.storage.files import replace

WIDTH = 118  # of a comment line
EXTENDS_MEANING = "a file beside this one, or a shipped config, whose values count where this file has none"


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
        "properties": {EXTENDS: {"type": "string", "description": EXTENDS_MEANING}, **sections},
    }


def commented(cfg: RunConfig, heading: str) -> str:
    """Write a config file with every key below a comment: its description, accepted values and default.

    `heading` is the comment at the top, "#" included.
    """
    lines = heading.splitlines()
    for name, section in SECTIONS.items():
        lines += ["", f"# {section.__doc__}", f"{name}:"]
        for key, value in getattr(cfg, name).model_dump().items():
            field = section.fields()[key]
            about = f"{field.description} ({describe_accepted(f'{name}.{key}')}; default {write(field.default)})"
            lines += textwrap.wrap(about, WIDTH, initial_indent="  # ", subsequent_indent="  #   ")
            lines.append(f"  {key}: {write(value)}")
    return "\n".join(lines) + "\n"


def read_heading(text: str) -> str:
    """Return the comment at the top of a config file: the lines before the first that is not a comment."""
    return "".join(itertools.takewhile(lambda line: line.startswith("#"), text.splitlines(keepends=True)))


def rewrite_configs(folder: Path) -> None:
    """Write the files of `folder` that follow from the schema. Raises ConfigError, StorageError."""
    replace(folder / "schema.json", (json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n").encode())
    small, base = folder / "small.yaml", folder / "lesson-base.yaml"
    replace(small, commented(load_config(small), read_heading(small.read_text("utf-8"))).encode())
    replace(base, f"{read_heading(base.read_text('utf-8'))}\n{dump_config(load_config(base))}".encode())


if __name__ == "__main__":
    rewrite_configs(builtin_folder("configs"))
