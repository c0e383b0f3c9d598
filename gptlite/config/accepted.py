"""What a key accepts: the answer for one value, and the words for a message, both read from the schema."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from gptlite.config.rules import Section
from gptlite.config.schema import RunConfig
from gptlite.config.values import INT64_MAX, Accepted
from gptlite.config.yaml import Value, resolve, write

SECTIONS: dict[str, type[Section]] = {
    name: field.annotation
    for name, field in RunConfig.model_fields.items()
    if isinstance(field.annotation, type) and issubclass(field.annotation, Section)
}
MAX_SHOWN = 40  # characters of a value in a message


def accepts(section: str, key: str, value: object) -> bool:
    """Whether `value` alone suits the key; rules between keys are another matter."""
    try:
        SECTIONS[section].model_validate({key: value})
    except ValidationError as error:
        return not any(key in detail["loc"][:1] for detail in error.errors(include_url=False))
    return True


def accepted(section: str, key: str) -> str:
    """The values that a key takes, in words.

    >>> accepted("train", "micro_batch_size"), accepted("model", "dropout")
    ('auto or a whole number >= 1', 'a number >= 0 and < 1')
    """
    field = SECTIONS[section].model_fields[key]
    return _words(field.annotation, field.metadata)


def refusal(section: str, key: str, value: Value) -> str:
    """`value: what is accepted`, and what to write instead where one can guess it."""
    words = accepted(section, key)
    if isinstance(value, int) and value > INT64_MAX:
        words += ", below 2**63"
    advice = (f"; write {shown(repair)}" for repair in _repairs(section, key, value) if accepts(section, key, repair))
    return f"{shown(value)}: {words}{next(advice, '')}"


def shown(value: Value) -> str:
    """`value` as it would stand in a file, cut to a length that fits a message."""
    if isinstance(value, str) and value and value.strip() == value and value.isprintable() and resolve(value) == value:
        text = value  # special to YAML perhaps, but as the user wrote it
    else:
        text = write(value if not isinstance(value, str) else value[:MAX_SHOWN])
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 3] + "..."


def _words(annotation: Any, metadata: list[Any]) -> str:
    given = next((item.words for item in metadata if isinstance(item, Accepted)), None)
    if given is not None:
        return given
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _words(args[0], [*args[1:], *metadata])
    if origin is Literal:
        return _listed([write(choice) for choice in args])
    if origin in (Union, UnionType):
        return _listed([_words(arg, []) for arg in args])
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


def _listed(parts: list[str]) -> str:
    return " or ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))


def _choices(annotation: Any) -> Iterator[str]:
    for arg in get_args(annotation):
        if get_origin(annotation) is Literal:
            yield arg
        else:
            yield from _choices(arg)


def _repairs(section: str, key: str, value: Value) -> Iterator[Value]:
    """Values that the user may have meant; the caller keeps those that the schema accepts."""
    if isinstance(value, float) and value.is_integer():
        yield int(value)  # 1e3 for a whole number
    choices = list(_choices(SECTIONS[section].model_fields[key].annotation))
    if value is None:
        yield from (*(choice for choice in choices if choice == "none"), "")
    if isinstance(value, (int, float)):
        yield write(value)  # digits, true and false are text only between quotes
    if not isinstance(value, str) or len(value) > MAX_SHOWN:
        return
    bare = value.strip().lower()
    if re.fullmatch(r"-?[1-9]\d{0,2}([_, ]\d{3})+", bare):  # 1_000 and 1,000 are texts
        bare = re.sub(r"[_, ]", "", bare)
    bare = re.sub(r"(?<=\d),(?=\d)", ".", bare)  # the decimal comma of half the world
    yield resolve(bare)
    if bare in ("yes", "on", "no", "off"):
        yield bare in ("yes", "on")
    if bare in ("none", "nil"):
        yield None
    yield [value]
    yield from difflib.get_close_matches(bare, choices, n=1, cutoff=0.7)
