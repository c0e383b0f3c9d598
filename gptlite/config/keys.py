"""The keys of the config by name: the values that each accepts, and what an unknown key or refused value stands for."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError

from gptlite.config.schema import SECTIONS
from gptlite.config.values import INT64_MAX, Accepted
from gptlite.config.yaml import MAX_SHOWN, Value, parse_scalar, shown, write
from gptlite.other_programs import MEANINGS, meaning

KEYS = {f"{section}.{key}": key for section, model in SECTIONS.items() for key in model.fields()}
NAMES = {
    "null": "null",
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "string": "text",
}
BOUNDS = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}
YAML_1_1 = {"yes": True, "on": True, "no": False, "off": False, "none": None}  # and Python's None
# The key of a word, of our own keys and of other programs' names; of equal words in several sections the first.
_MEANT = {leaf: name for name, leaf in reversed(KEYS.items())}
_MEANT |= {word: key for names, key in MEANINGS["key"].items() if key in KEYS for word in names.split()}


def is_accepted(name: str, value: object) -> bool:
    """Return whether a key "section.key" accepts `value`, apart from the rules between keys."""
    section, _, key = name.partition(".")
    try:
        SECTIONS[section].model_validate({key: value})
    except ValidationError as error:
        return not any(key in detail["loc"][:1] for detail in error.errors(include_url=False))
    return True


def describe_accepted(name: str) -> str:
    """Describe the values that a key accepts.

    >>> describe_accepted("train.micro_batch_size"), describe_accepted("model.dropout")
    ('auto or a whole number >= 1', 'a number >= 0 and <= 0.99')
    """
    section, _, key = name.partition(".")
    metadata = SECTIONS[section].fields()[key].metadata
    own = (item.description for item in metadata if isinstance(item, Accepted))
    return next(own, None) or _joined([_describe(schema) for schema in _alternatives(name)])


def explain_refusal(name: str, value: Value) -> str:
    """Say which values a key "section.key" accepts instead of `value`, and which one the user may have meant."""
    limit = " The largest number is 2**63 - 1." if isinstance(value, int) and value > INT64_MAX else ""
    advice = next((f" Write {shown(repair)}." for repair in accepted_repairs(name, value)), "")
    return f"{name} is {shown(value)}, but it must be {describe_accepted(name)}.{limit}{advice}"


def accepted_repairs(name: str, value: Value) -> Iterator[Value]:
    """Yield values that the key accepts and that may be meant by `value`, likeliest first."""
    repairs: list[Value] = []
    if isinstance(value, int | float):
        whole = [int(value)] if isinstance(value, float) and value.is_integer() else []
        repairs = [*whole, write(value)]  # 1e3 for a whole number, 12 for the text "12"
    elif isinstance(value, str) and len(value) <= MAX_SHOWN:
        word = value.strip().lower()
        choices = [choice for schema in _alternatives(name) for choice in _choices(schema)]
        near = difflib.get_close_matches(word, choices, n=1, cutoff=0.7)
        plain = parse_scalar(re.sub(r"(?<=\d)_(?=\d{3})", "", word))  # "3e-4", 1_000
        repairs = [plain, YAML_1_1.get(word, value), [value], *filter(None, [meaning("value", word)]), *near]
    return (repair for repair in repairs if is_accepted(name, repair))


@functools.cache
def _alternatives(name: str) -> list[dict[str, Any]]:
    """Return the JSON Schemas of which a value of the key satisfies one."""
    section, _, key = name.partition(".")
    schema = SECTIONS[section].model_json_schema()["properties"][key]
    return list(schema.get("anyOf", [schema]))


def _choices(schema: dict[str, Any]) -> list[str]:
    return [schema["const"]] if "const" in schema else list(schema.get("enum", ()))


def _describe(schema: dict[str, Any]) -> str:
    if _choices(schema):
        return _joined(_choices(schema))
    bounds = {sign: schema[name] for name, sign in BOUNDS.items() if schema.get(name, INT64_MAX) != INT64_MAX}
    if bounds == {">=": 0, "<=": 1}:
        return "a number from 0 to 1"
    return " ".join([NAMES[schema["type"]], " and ".join(f"{sign} {bound}" for sign, bound in bounds.items())]).rstrip()


def _joined(parts: list[str]) -> str:
    return " or ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))


def suggest_key(section: str | None, key: str) -> list[str]:
    """Return the full names that `key`, unknown in `section` (None: outside any), may stand for, likeliest first.

    >>> suggest_key("train", "n_layer"), suggest_key("model", "d_model"), suggest_key("train", "warmup_step")
    (['model.n_layer'], ['model.n_embd'], ['train.warmup_steps'])
    """
    if key.lower() in KEYS:
        return [key.lower()]
    word = _plain(key.rpartition(".")[2])
    here = {leaf: name for name, leaf in KEYS.items() if name.startswith(f"{section}.")}
    named = [name for name, leaf in KEYS.items() if leaf == word]
    if named:
        return [here[word]] if word in here else named[:3]
    meant = _MEANT | here
    return [meant[close] for close in difflib.get_close_matches(word, meant, n=1, cutoff=0.7)]


def explain_key(key: str) -> str | None:
    """Return what to do instead of a key that no key of the config stands for as it is; None for all others."""
    advice = meaning("key", _plain(key.rpartition(".")[2]))
    return None if advice in KEYS else advice


def suggest_section(name: str) -> str | None:
    """Return the section that an unknown one may stand for."""
    word = _plain(name)
    close = difflib.get_close_matches(word, SECTIONS, n=1, cutoff=0.6)
    return meaning("section", word) or (close[0] if close else None)


def _plain(word: str) -> str:
    return word.strip().lower().replace("-", "_")[:64]


def explain_unknown_key(name: str) -> str | None:
    """Say that no key is called `name`, and which "section.key" was probably meant; None where there is one."""
    section, dot, key = name.partition(".")
    if name in KEYS:
        return None
    meant = suggest_key(section if section in SECTIONS else suggest_section(section) if dot else None, key or name)
    near = f"Did you mean {' or '.join(meant)}?" if meant else "The built-in small.yaml lists every key."
    return f"{shown(name)} is not a key of the config. {explain_key(name) or near}"


def explain_unknown_section(name: str, value: Value) -> str:
    """Say that a name at the top of a file is unknown there, and what was probably meant."""
    is_key = not isinstance(value, dict | None)
    keys = [f"{KEYS[key]} in the section {key.partition('.')[0]}" for key in suggest_key(None, name)]
    meant = " or ".join(keys) if is_key else suggest_section(name)
    near = f"Did you mean {meant}?" if meant else f"The sections are {', '.join(SECTIONS)}."
    advice = (is_key and explain_key(name)) or near
    return f"{shown(name)} is not a section of the config. {advice}"
