"""The YAML of configs: scalars as YAML 1.2 defines them, the line of every key; saved configs without the schema.

PyYAML parses. It follows YAML 1.1, in which `3e-4` is text, `on` is true, `12:30` is 750 and `010` is 8, so
`parse_scalar` decides what a scalar means. Anchors, aliases and tags are refused: a config needs
none, and aliases let a small file expand without bound.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import yaml

Scalar: TypeAlias = bool | int | float | str | None
Value: TypeAlias = "Scalar | list[Value] | dict[str, Value]"
KeyPath: TypeAlias = tuple[str, ...]  # ("train", "lr")

DEFAULT_MAX_STEPS = 1000  # what null stands for, known without loading the schema
DEFAULT_BPE_VOCAB_SIZE = 4096
MAX_DIGITS = 400  # int() refuses thousands of digits, and the exponent of a float is below 310
MAX_SHOWN = 40  # characters of a value in a message

_WORDS: dict[str, Scalar] = {"": None, "~": None, "null": None, "Null": None, "NULL": None}
_WORDS |= dict.fromkeys(("true", "True", "TRUE"), True) | dict.fromkeys(("false", "False", "FALSE"), False)
_WORDS |= dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan"))
_WORDS |= {sign + word: float(sign + "inf") for sign in ("", "+", "-") for word in (".inf", ".Inf", ".INF")}
_INT = re.compile(r"[-+]?[0-9]+")
_INT_WITH_BASE = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_UNQUOTED = re.compile(r"(?!\.\d|(?:y|n|yes|no|on|off)$)[a-z_./][a-z0-9_./-]*( [a-z0-9_./-]+)*", re.IGNORECASE)

# What to say where PyYAML's message contains the left side.
_SENTENCES = {
    "'\\t' that cannot start any token": "there is a tab here. Indent with spaces.",
    "mapping values are not allowed here": "this ':' does not belong here. Check the indentation, or quote the text.",
    "unknown escape character": "a backslash between double quotes begins an escape. Use single quotes.",
    "while scanning a quoted scalar": "a quote is never closed.",
    "expected <block end>": "the indentation does not match any line above.",
    "could not find expected ':'": "this line has no ':'. Write key: value.",
    "while parsing a flow": "a bracket is never closed, or a comma is missing.",
    "expected a single document": "a second document (---) begins here, but a config is one document.",
}


class YamlError(Exception):
    """The text is not YAML that a config may use. `sentence` says why, `line` counts from 1."""

    def __init__(self, line: int, sentence: str) -> None:
        self.line = line
        self.sentence = sentence
        super().__init__(f"line {line}: {sentence}")


@dataclass(frozen=True)
class Document:
    """The value of a text, and the line of each key in it."""

    value: Value
    lines: dict[KeyPath, int]


class _Loader(yaml.SafeLoader):
    """PyYAML's loader, which leaves plain scalars as text and refuses what a config may not contain."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}  # type: ignore[misc]

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            raise YamlError(line, "anchors and aliases (& and *) are not supported. Write the value out, or quote it.")
        if event.tag is not None:
            raise YamlError(line, "tags (!) are not supported. Leave it out, or quote the text.")
        return super().compose_node(parent, index)


def read(text: str) -> Document:
    """Parse one document; an empty one is null. Raises YamlError."""
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise YamlError(mark.line + 1 if mark else 1, _sentence(error)) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        character = f"U+{ord(text[error.position]):04X}"
        raise YamlError(line, f"the character {character} is not allowed in a config.") from error
    except (ValueError, OverflowError, RecursionError) as error:
        # PyYAML lets int() and chr() fail on escapes beyond Unicode and on absurd version numbers
        sentence = "there is an escape or number that YAML does not know, or values are nested too deep."
        raise YamlError(loader.line + 1, sentence) from error
    lines: dict[KeyPath, int] = {}
    return Document(None if node is None else _value(node, (), lines), lines)


def read_value(text: str) -> Value:
    """Return the value of one line. Raises YamlError for quotes and brackets that are not closed."""
    # Only quotes and brackets need a parser: everything else is one scalar, so that `eval.prompt=a: b # c` is text.
    return read(text).value if text[:1] in ('"', "'", "[", "{") else parse_scalar(text)


def _sentence(error: yaml.MarkedYAMLError) -> str:
    said = f"{error.context or ''} {error.problem or ''}".strip()
    known = (sentence for words, sentence in _SENTENCES.items() if words in said)
    return next(known, f"this is not valid YAML ({said}).")


def _value(node: yaml.Node, path: KeyPath, lines: dict[KeyPath, int]) -> Value:
    """Return a node's value, and note the lines of the keys in it."""
    if isinstance(node, yaml.ScalarNode):
        return parse_scalar(node.value) if node.style is None else str(node.value)
    if isinstance(node, yaml.SequenceNode):
        return [_value(item, path, lines) for item in node.value]
    mapping: dict[str, Value] = {}
    for key, item in node.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            raise YamlError(line, "a key must be a word, not a list or mapping.")
        name = (*path, key.value)
        if key.value in mapping:
            sentence = f"{shown('.'.join(name))} was given before, in line {lines[name]}. Keep one of them."
            raise YamlError(line, sentence)
        lines[name] = line
        mapping[key.value] = _value(item, name, lines)
    return mapping


def parse_scalar(text: str) -> Scalar:
    """Convert an unquoted scalar by the core schema of YAML 1.2.

    >>> parse_scalar("3e-4"), parse_scalar("010"), parse_scalar("on"), parse_scalar("12:30")
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


def write(value: Value) -> str:
    """Write `value` in one line that YAML 1.1 and YAML 1.2 readers understand alike.

    >>> write(3e-05), write("on"), write(["a b", "1"])
    ('3.0e-05', '"on"', '[a b, "1"]')
    """
    if isinstance(value, str):
        return _write_text(value)
    if isinstance(value, list):
        return "[" + ", ".join(map(write, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{write(key)}: {write(item)}" for key, item in value.items()) + "}"
    return str(yaml.representer.SafeRepresenter().represent_data(value).value)


def _write_text(text: str) -> str:
    if _UNQUOTED.fullmatch(text) and parse_scalar(text) == text:
        return text
    escaped = (c if c.isprintable() and c != "\\" else c.encode("unicode_escape").decode() for c in text)
    return '"' + "".join(escaped).replace('"', '\\"') + '"'


def shown(value: Value) -> str:
    """Write `value` for a message: as in a file, cut to MAX_SHOWN characters."""
    if isinstance(value, str) and value.strip() == value and value.isprintable() and parse_scalar(value) == value:
        text = value  # it may need quotes in YAML, but this is what the user wrote
    else:
        text = write(value if not isinstance(value, str) else value[:MAX_SHOWN])
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 3] + "..."


# A line as `dump_config` writes it: reading lines takes a hundredth of the time of parsing YAML.
_SECTION = re.compile(r"(\w+):")
_KEY = re.compile(r"  (\w+): ([\w./+-]+(?: [\w./+-]+)*|[\"\[].*)")
_read_value = functools.lru_cache(maxsize=4096)(read_value)  # runs share most of their values


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
        sections = read(text).value
    if not isinstance(sections, dict) or not all(isinstance(keys, dict | None) for keys in sections.values()):
        raise YamlError(1, "a config is a mapping with sections.")
    mappings = {name: keys for name, keys in sections.items() if isinstance(keys, dict)}
    return {f"{name}.{key}": value for name, keys in mappings.items() for key, value in keys.items()}


def shortened(keys: Sequence[str]) -> dict[str, str]:
    """Map each key to its name without the section, or to itself where that name occurs twice."""
    times = Counter(key.rpartition(".")[2] for key in keys)
    return {key: leaf if times[leaf := key.rpartition(".")[2]] == 1 else key for key in keys}
