"""Describe, from the schema, which values a key accepts and why a value is refused."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from gptlite.config.schema import SECTIONS
from gptlite.config.values import INT64_MAX, Accepted
from gptlite.config.yaml import MAX_SHOWN, Value, resolve, shown, write


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
    ('auto or a whole number >= 1', 'a number >= 0 and < 1')
    """
    field = SECTIONS[section].model_fields[key]
    return _describe(field.annotation, field.metadata)


def explain_refusal(section: str, key: str, value: Value) -> str:
    """Say which values a key accepts instead of `value`, and which one the user may have meant."""
    limit = " below 2**63" if isinstance(value, int) and value > INT64_MAX else ""
    meant = (repair for repair in _repairs(section, key, value) if is_accepted(section, key, repair))
    advice = next((f" Write {shown(repair)}." for repair in meant), "")
    return f"{section}.{key} is {shown(value)}, but it must be {describe_accepted(section, key)}{limit}.{advice}"


def _describe(annotation: Any, metadata: list[Any]) -> str:
    given = next((item.description for item in metadata if isinstance(item, Accepted)), None)
    if given is not None:
        return given
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _describe(args[0], [*args[1:], *metadata])
    if origin is Literal:
        return _joined([write(choice) for choice in args])
    if origin in (Union, UnionType):
        return _joined([_describe(arg, []) for arg in args])
    names = {type(None): "null", bool: "true or false", int: "a whole number", float: "a number", str: "text"}
    return f"{names[annotation]} {' and '.join(_bounds(metadata))}".rstrip().replace(">= 0 and <= 1", "from 0 to 1")


def _bounds(metadata: list[Any]) -> Iterator[str]:
    for item in metadata:
        if isinstance(item, FieldInfo):
            yield from _bounds(item.metadata)
        elif isinstance(item, annotated_types.Ge):
            yield f">= {item.ge}"
        elif isinstance(item, annotated_types.Gt):
            yield f"> {item.gt}"
        elif isinstance(item, annotated_types.Lt):
            yield f"< {item.lt}"
        elif isinstance(item, annotated_types.Le) and item.le != INT64_MAX:
            yield f"<= {item.le}"


def _joined(parts: list[str]) -> str:
    return " or ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))


def _choices(annotation: Any) -> Iterator[str]:
    for arg in get_args(annotation):
        if get_origin(annotation) is Literal:
            yield arg
        else:
            yield from _choices(arg)


def _repairs(section: str, key: str, value: Value) -> Iterator[Value]:
    """Yield values that the user may have meant, valid for the key or not."""
    if isinstance(value, float) and value.is_integer():
        yield int(value)  # 1e3 for a whole number
    if isinstance(value, int | float):
        yield write(value)  # 12 for the text "12"
    if not isinstance(value, str) or len(value) > MAX_SHOWN:
        return
    word = value.strip().lower()
    yield resolve(re.sub(r"(?<=\d)_(?=\d{3})", "", word))  # "3e-4", 1_000
    yield {"yes": True, "on": True, "no": False, "off": False, "none": None}.get(word, value)  # YAML 1.1, Python
    yield [value]
    yield from difflib.get_close_matches(
        word, _choices(SECTIONS[section].model_fields[key].annotation), n=1, cutoff=0.7
    )
