"""Read the saved config of a run without the schema: `gptlite runs` lists hundreds of runs, of any version."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Sequence

from gptlite.config import yaml
from gptlite.config.yaml import Value, YamlError

# What null stands for. The schema takes these from here, so that they are known without loading it.
DEFAULT_MAX_STEPS = 1000
DEFAULT_BPE_VOCAB_SIZE = 4096

# A line as `dump_config` writes it: reading lines takes a hundredth of the time of parsing YAML.
_SECTION = re.compile(r"(\w+):")
_KEY = re.compile(r"  (\w+): ([\w./+-]+(?: [\w./+-]+)*|[\"\[].*)")
_read_value = functools.lru_cache(maxsize=4096)(yaml.read_value)  # runs share most of their values


def saved_values(text: str) -> dict[str, Value]:
    """Return every key with its value, unchecked: {"train.lr": 0.002, ...}. Raises YamlError."""
    values: dict[str, Value] = {}
    section = ""
    for line in text.removesuffix("\n").split("\n"):
        if section and (found := _KEY.fullmatch(line)):
            try:
                values[f"{section}.{found[1]}"] = _read_value(found[2])
            except YamlError:  # such as a list over several lines
                return _values_of_edited(text)
        elif found := _SECTION.fullmatch(line):
            section = found[1]
        else:
            return _values_of_edited(text)
    return values


def _values_of_edited(text: str) -> dict[str, Value]:
    sections = yaml.read(text).value
    values: dict[str, Value] = {}
    for name, keys in sections.items() if isinstance(sections, dict) else [("", sections)]:
        if not isinstance(keys, dict | None):
            raise YamlError(1, "a config is a mapping with sections.")
        values |= {f"{name}.{key}": value for key, value in (keys or {}).items()}
    return values


def shortened(keys: Sequence[str]) -> dict[str, str]:
    """Map each key to its name without the section, or to itself where that name occurs twice."""
    times = Counter(key.rpartition(".")[2] for key in keys)
    return {key: leaf if times[leaf := key.rpartition(".")[2]] == 1 else key for key in keys}
