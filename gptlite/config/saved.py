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
    try:
        for line in text.removesuffix("\n").split("\n"):
            if section and (key := _KEY.fullmatch(line)):
                values[f"{section}.{key[1]}"] = _read_value(key[2])
            elif head := _SECTION.fullmatch(line):
                section = head[1]
            else:
                raise YamlError(1, "this is not as dump_config writes it.")
        return values
    except YamlError:  # edited by hand, with a list over several lines, say
        sections = yaml.read(text).value
    if not isinstance(sections, dict) or not all(isinstance(keys, dict | None) for keys in sections.values()):
        raise YamlError(1, "a config is a mapping with sections.")
    mappings = {name: keys for name, keys in sections.items() if isinstance(keys, dict)}
    return {f"{name}.{key}": value for name, keys in mappings.items() for key, value in keys.items()}


def shortened(keys: Sequence[str]) -> dict[str, str]:
    """Map each key to its name without the section, or to itself where that name occurs twice."""
    times = Counter(key.rpartition(".")[2] for key in keys)
    return {key: leaf if times[leaf := key.rpartition(".")[2]] == 1 else key for key in keys}
