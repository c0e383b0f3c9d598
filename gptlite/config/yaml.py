"""YAML as configs use it: the core scalars of YAML 1.2, line numbers kept, duplicate keys noticed.

PyYAML finds the structure; what a scalar means is decided here, because PyYAML follows YAML 1.1, in which `3e-4` is
text, `on` is true, `12:30` is 750 and `010` is 8. Anchors, aliases and tags are refused: a config needs none, and
aliases are how a small file grows without bound.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

import yaml

Scalar: TypeAlias = bool | int | float | str | None
Value: TypeAlias = "Scalar | list[Value] | dict[str, Value]"
Events: TypeAlias = Iterator[tuple[int, yaml.Event]]

MAX_DEPTH = 8  # a section, its keys, a list: anything much deeper is no config
MAX_DIGITS = 400  # int() refuses thousands of digits, and every float has an exponent below 310

_WORDS: dict[str, Scalar] = {"": None, "~": None, "null": None, "Null": None, "NULL": None}
_WORDS |= dict.fromkeys(("true", "True", "TRUE"), True) | dict.fromkeys(("false", "False", "FALSE"), False)
_WORDS |= dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan"))
_WORDS |= {sign + word: float(sign + "inf") for sign in ("", "+", "-") for word in (".inf", ".Inf", ".INF")}
_INT = re.compile(r"[-+]?[0-9]+")
_INT_WITH_BASE = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_PLAIN = re.compile(r"[A-Za-z_./][A-Za-z0-9_./-]*( [A-Za-z0-9_./-]+)*")

_REASONS = {
    "'\\t' that cannot start any token": "a tab; indent with spaces",
    "mapping values are not allowed here": "a ':' that does not belong here; check the indentation, or quote the text",
    "unknown escape character": "an unknown escape like \\d between double quotes; use single quotes",
    "while scanning a quoted scalar": "a quote that is never closed",
    "expected <block end>": "indentation that fits no line above",
    "could not find expected ':'": "a line without ':'; write key: value",
    "while parsing a flow": "a bracket that is never closed, or a missing comma",
}


class YamlError(Exception):
    """The text is not YAML that a config may use; `line` counts from 1."""

    def __init__(self, line: int, reason: str) -> None:
        self.line = line
        self.reason = reason
        super().__init__(f"line {line}: {reason}")


@dataclass(frozen=True)
class Node:
    """A value and the line in which it begins; mappings have Nodes as values, lists plain values."""

    value: Scalar | list[Value] | dict[str, Node]
    line: int
    repeated: dict[str, int] = field(default_factory=dict)  # keys given again, and the line of the repetition

    def plain(self) -> Value:
        """The value without line numbers."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        return self.value


def resolve(text: str) -> Scalar:
    """What an unquoted scalar means under the core schema of YAML 1.2.

    >>> resolve("3e-4"), resolve("010"), resolve("on"), resolve("12:30")
    (0.0003, 10, 'on', '12:30')
    """
    if text in _WORDS:
        return _WORDS[text]
    if len(text) <= MAX_DIGITS:
        if _INT.fullmatch(text):
            return int(text)
        if _INT_WITH_BASE.fullmatch(text):
            return int(text, 0)
        if _FLOAT.fullmatch(text):
            return float(text)
    return text


def read(text: str) -> Node:
    """The document in `text`; an empty one is null. Raises YamlError."""
    events = (pair for pair in _events(text) if not isinstance(pair[1], (yaml.StreamStartEvent, yaml.StreamEndEvent)))
    if next(events, None) is None:
        return Node(None, 1)
    node = _node(*next(events), events, 0)
    next(events)  # the end of the document
    second = next(events, None)
    if second is not None:
        raise YamlError(second[0], "a second document (---); a config is one document")
    return node


def _events(text: str) -> Events:
    """What PyYAML finds, each event with its line; whatever it says against the text becomes a YamlError."""
    line = 1
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            line = event.start_mark.line + 1 if event.start_mark else line
            if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
                raise YamlError(line, "an anchor or alias (& or *); write the value out, or quote the text")
            if getattr(event, "tag", None) is not None:
                raise YamlError(line, "a tag (!); write the value without it, or quote the text")
            yield line, event
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise YamlError(mark.line + 1 if mark else line, _reason(error)) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise YamlError(line, f"character U+{ord(text[error.position]):04X}; a config is plain text") from error
    except (ValueError, OverflowError) as error:
        # PyYAML lets int() and chr() fail on escapes beyond Unicode and on absurd version numbers
        raise YamlError(line, "an escape or number that YAML does not know") from error


def _reason(error: yaml.MarkedYAMLError) -> str:
    said = f"{error.context or ''} {error.problem or ''}".strip()
    known = (reason for words, reason in _REASONS.items() if words in said)
    return next(known, f"broken YAML ({said})")


def _node(line: int, event: yaml.Event, events: Events, depth: int) -> Node:
    if depth > MAX_DEPTH:
        raise YamlError(line, f"values nested more than {MAX_DEPTH} deep; a config has sections, keys and lists")
    if isinstance(event, yaml.ScalarEvent):
        return Node(resolve(event.value) if event.implicit[0] else event.value, line)
    if isinstance(event, yaml.SequenceStartEvent):
        items: list[Value] = []
        while not isinstance((item := next(events))[1], yaml.SequenceEndEvent):
            items.append(_node(*item, events, depth + 1).plain())
        return Node(items, line)
    return _mapping(line, events, depth)


def _mapping(line: int, events: Events, depth: int) -> Node:
    found: dict[str, Node] = {}
    repeated: dict[str, int] = {}
    while not isinstance((key := next(events))[1], yaml.MappingEndEvent):
        key_line, event = key
        if not isinstance(event, yaml.ScalarEvent):
            raise YamlError(key_line, "a key that is a list or mapping; keys are words")
        node = _node(*next(events), events, depth + 1)
        if event.value in found:
            repeated.setdefault(event.value, key_line)
        else:
            found[event.value] = Node(node.value, key_line, node.repeated)
    return Node(found, line, repeated)


def write(value: Value) -> str:
    """`value` in one line that YAML 1.1 and YAML 1.2 readers understand alike.

    >>> write(3e-05), write("on"), write(["a b", "1"])
    ('3.0e-05', '"on"', '[a b, "1"]')
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and not math.isfinite(value):
        return {"nan": ".nan", "inf": ".inf", "-inf": "-.inf"}[str(value)]
    if isinstance(value, float):
        digits, exponent, power = repr(value).partition("e")
        return digits + ".0" * (bool(exponent) and "." not in digits) + exponent + power
    if isinstance(value, list):
        return "[" + ", ".join(write(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{write(key)}: {write(item)}" for key, item in value.items()) + "}"
    return str(value) if isinstance(value, int) else _write_text(value)


def _write_text(text: str) -> str:
    is_plain = _PLAIN.fullmatch(text) and isinstance(resolve(text), str)
    # PyYAML knows YAML 1.1, except for its two shortest booleans
    if is_plain and text.lower() not in ("y", "n") and yaml.safe_load(f"- {text}") == [text]:
        return text
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(char: str) -> str:
    if char in '"\\':
        return "\\" + char
    if char.isprintable():
        return char
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
