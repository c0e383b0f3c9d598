"""Describe, from the schema, which values a key accepts and why a value is refused."""

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
from gptlite.other_programs import meaning

NAMES = {
    "null": "null",
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "string": "text",
}
BOUNDS = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}
WORDS = {"yes": True, "on": True, "no": False, "off": False, "none": None}  # of YAML 1.1 and Python


def is_accepted(section: str, key: str, value: object) -> bool:
    """Return whether a key accepts `value`, apart from the rules between keys."""
    try:
        SECTIONS[section].model_validate({key: value})
    except ValidationError as error:
        return not any(key in detail["loc"][:1] for detail in error.errors(include_url=False))
    return True


def describe_accepted(section: str, key: str) -> str:
    """Describe the values that a key accepts.

    >>> describe_accepted("train", "micro_batch_size"), describe_accepted("model", "dropout")
    ('auto or a whole number >= 1', 'a number >= 0 and <= 0.99')
    """
    metadata = SECTIONS[section].fields()[key].metadata
    own = (item.description for item in metadata if isinstance(item, Accepted))
    return next(own, None) or _joined([_describe(schema) for schema in _alternatives(section, key)])


def explain_refusal(name: str, value: Value) -> str:
    """Say which values a key "section.key" accepts instead of `value`, and which one the user may have meant."""
    section, _, key = name.partition(".")
    limit = " The largest number is 2**63 - 1." if isinstance(value, int) and value > INT64_MAX else ""
    advice = next((f" Write {shown(repair)}." for repair in accepted_repairs(section, key, value)), "")
    return f"{name} is {shown(value)}, but it must be {describe_accepted(section, key)}.{limit}{advice}"


def accepted_repairs(section: str, key: str, value: Value) -> Iterator[Value]:
    """Yield values that the key accepts and that may be meant by `value`, likeliest first."""
    repairs: list[Value] = []
    if isinstance(value, int | float):
        whole = [int(value)] if isinstance(value, float) and value.is_integer() else []
        repairs = [*whole, write(value)]  # 1e3 for a whole number, 12 for the text "12"
    elif isinstance(value, str) and len(value) <= MAX_SHOWN:
        word = value.strip().lower()
        choices = [choice for schema in _alternatives(section, key) for choice in _choices(schema)]
        near = difflib.get_close_matches(word, choices, n=1, cutoff=0.7)
        plain = parse_scalar(re.sub(r"(?<=\d)_(?=\d{3})", "", word))  # "3e-4", 1_000
        repairs = [plain, WORDS.get(word, value), [value], *filter(None, [meaning("value", word)]), *near]
    return (repair for repair in repairs if is_accepted(section, key, repair))


@functools.cache
def _alternatives(section: str, key: str) -> list[dict[str, Any]]:
    """Return the JSON Schemas of which a value of the key satisfies one."""
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
