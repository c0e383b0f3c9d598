"""The config of a run as it was saved, read without the schema: for lists of hundreds of runs of any version."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Sequence

from gptlite.config import yaml
from gptlite.config.yaml import Value, YamlError

# The lines that `dump_config` writes: read one by one, which takes a hundredth of the time that YAML takes.
_SECTION = re.compile(r"(\w+):")
_KEY = re.compile(r"  (\w+): ([\w./+-]+(?: [\w./+-]+)*|[\"\[].*)")


def saved_values(text: str) -> dict[str, Value]:
    """Every key with its value, unchecked: {"train.lr": 0.002, ...}. YamlError for text that is no config."""
    values = _read_lines(text)
    return _read_yaml(text) if values is None else values


def _read_lines(text: str) -> dict[str, Value] | None:
    """The values of text as `dump_config` writes it; None for text that somebody has edited."""
    values: dict[str, Value] = {}
    section = None
    for line in text.removesuffix("\n").split("\n"):
        if section is not None and (found := _KEY.fullmatch(line)):
            try:
                values[f"{section}.{found[1]}"] = _value(found[2])
            except YamlError:  # a list of several lines, say
                return None
        elif found := _SECTION.fullmatch(line):
            section = found[1]
        else:
            return None
    return values


@functools.lru_cache(maxsize=4096)  # runs have most of their values in common
def _value(text: str) -> Value:
    return yaml.read(text).plain() if text[0] in '"[' else yaml.resolve(text)


def _read_yaml(text: str) -> dict[str, Value]:
    sections = yaml.read(text).plain()
    if not isinstance(sections, dict) or not all(isinstance(keys, dict | None) for keys in sections.values()):
        raise YamlError(1, "a config is a mapping with sections")
    return {
        f"{name}.{key}": value
        for name, keys in sections.items()
        if isinstance(keys, dict)
        for key, value in keys.items()
    }


def shortened(keys: Sequence[str]) -> dict[str, str]:
    """Keys without their section, where that leaves no doubt."""
    times = Counter(key.rpartition(".")[2] for key in keys)
    return {key: leaf if times[leaf := key.rpartition(".")[2]] == 1 else key for key in keys}
