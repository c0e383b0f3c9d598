"""A YAML file and overrides become a RunConfig, or one error that names every problem of both.

    load_config(path, ["train.lr=3e-4"])    a file, then --set
    parse_config(text, "small.yaml")        text that is at hand
    dump_config(cfg)                        the complete YAML, which parse_config reads back to an equal config

A problem reads `file:line: section.key = value: what is accepted`, or `--set: ...`. An override replaces what the file
says, and the file's problem with it. An empty section stands for its defaults.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gptlite.config import yaml
from gptlite.config.accepted import SECTIONS, accepts, refusal, shown
from gptlite.config.finding import builtin_folder, find_config
from gptlite.config.schema import RunConfig
from gptlite.config.suggest import suggest_key, suggest_section
from gptlite.config.yaml import Node, Value, YamlError
from gptlite.errors import ConfigError

__all__ = ["Override", "builtin_folder", "dump_config", "find_config", "json_schema", "load_config", "parse_config"]

MAX_BYTES = 65536  # ten times a config with a comment on every key
MAX_PROBLEMS = 100  # some other program's YAML would have thousands


@dataclass(frozen=True)
class Override:
    """A value from outside the file; `where` names the option in messages, `key` is "section.key"."""

    where: str
    key: str
    value: Value


@dataclass(frozen=True)
class _Place:
    """Where something was given: a line of a file, or an option (rank counts options, a file has 0)."""

    name: str
    line: int = 0
    rank: int = 0

    def __str__(self) -> str:
        return f"{self.name}:{self.line}" if self.line else self.name


@dataclass(frozen=True)
class _Entry:
    place: _Place
    value: Value


class _Draft:
    """What has been given so far, and what is wrong with it."""

    def __init__(self) -> None:
        self.entries: dict[tuple[str, str], _Entry] = {}
        self.problems: list[tuple[_Place, str]] = []

    def complain(self, place: _Place, text: str) -> None:
        self.problems.append((place, f"{place}: {text}"))
        if len(self.problems) == MAX_PROBLEMS:
            raise self.error(f"{place.name}: {MAX_PROBLEMS} problems so far, and reading ends; is this the right file?")

    def forget(self, section: str, keys: Collection[str]) -> None:
        """Take back what the file says of `keys`."""
        for name in [(section, key) for key in keys]:
            if name in self.entries and self.entries[name].place.rank == 0:
                del self.entries[name]

    def error(self, *last: str) -> ConfigError:
        """Every problem in the order of lines, then of options."""
        in_order = sorted(self.problems, key=lambda problem: (problem[0].rank, problem[0].line))
        return ConfigError([*(text for _, text in in_order), *last])

    def finish(self) -> RunConfig:
        """The config; raises a ConfigError with every problem."""
        for (section, key), entry in self.entries.items():
            if not accepts(section, key, entry.value):
                self.complain(entry.place, f"{section}.{key} = {refusal(section, key, entry.value)}")
        for section in SECTIONS:
            self._check_rules(section)
        if self.problems:
            raise self.error()
        data: dict[str, dict[str, Value]] = {}
        for (section, key), entry in self.entries.items():
            data.setdefault(section, {})[key] = entry.value
        return RunConfig.model_validate(data)

    def _check_rules(self, section: str) -> None:
        """Hold the rules between keys whose values are all fine; blame the key that was given last."""
        fields = SECTIONS[section].model_fields
        for rule in SECTIONS[section].rules:
            given = {key: self.entries[section, key] for key in rule.keys if (section, key) in self.entries}
            if not all(accepts(section, key, entry.value) for key, entry in given.items()):
                continue
            values = (given[key].value if key in given else fields[key].default for key in rule.keys)
            remedies = rule.remedies(*values)
            blamed = max((key for key in given if key in remedies), key=lambda key: given[key].place.rank, default=None)
            if blamed is not None:
                entry = given[blamed]
                self.complain(entry.place, f"{section}.{blamed} = {shown(entry.value)}: {remedies[blamed]}")


def load_config(path: Path | None, overrides: Sequence[str | Override] = ()) -> RunConfig:
    """The config in the file (None: only defaults) with overrides applied in order.

    An override is "section.key=value", the value a YAML scalar or [list], or an Override whose value is taken as it is.
    Raises ConfigError with every problem of the file and the overrides.
    """
    draft = _Draft()
    if path is not None:
        _take_text(draft, _read_text(path), str(path))
    for rank, override in enumerate(overrides, start=1):
        _take_override(draft, override, rank)
    return draft.finish()


def parse_config(text: str, where: str) -> RunConfig:
    """The config in `text`; `where` names it in messages. Raises ConfigError with every problem."""
    draft = _Draft()
    _take_text(draft, text, where)
    return draft.finish()


def _read_text(path: Path) -> str:
    if path.is_dir():
        raise ConfigError(f"{path}: a config is a YAML file, and this is a folder; name a file in it")
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; check the path") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); check the file and its permissions") from error
    if len(data) > MAX_BYTES:
        raise ConfigError(f"{path}: more than {MAX_BYTES} bytes; a config is a short YAML file: name the right one")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        byte = f"byte 0x{data[error.start]:02x} at offset {error.start}"
        raise ConfigError(
            f"{path}: not UTF-8 text ({byte}); save the config as UTF-8, or name the right file"
        ) from None


def _take_text(draft: _Draft, text: str, where: str) -> None:
    try:
        root = yaml.read(text)
    except YamlError as error:
        raise ConfigError(f"{where}:{error.line}: {error.reason}") from error
    if root.value is None:
        root = Node({}, root.line)
    if not isinstance(root.value, dict):
        names = ", ".join(SECTIONS)
        raise ConfigError(f"{where}:{root.line}: {shown(root.plain())}: a config is a mapping with sections {names}")
    _complain_of_repeats(draft, root, where, "")
    for name, node in root.value.items():
        if name in SECTIONS:
            _take_section(draft, name, node, where)
        else:
            draft.complain(_Place(where, node.line), _unknown_section(name, node))
    if not draft.entries and not draft.problems:
        draft.complain(_Place(where), "no key in it: a config sets at least one; fill it in, or name another file")


def _take_section(draft: _Draft, section: str, node: Node, where: str) -> None:
    if node.value is None:
        return
    if not isinstance(node.value, dict):
        text = f"{section} = {shown(node.plain())}: a section with keys; write them indented below {section}:"
        draft.complain(_Place(where, node.line), text)
        return
    _complain_of_repeats(draft, node, where, f"{section}.")
    for key, found in node.value.items():
        place = _Place(where, found.line)
        if key in SECTIONS[section].model_fields:
            draft.entries[section, key] = _Entry(place, found.plain())
        else:
            draft.complain(place, _unknown_key(section, key, found.plain()))


def _complain_of_repeats(draft: _Draft, node: Node, where: str, prefix: str) -> None:
    assert isinstance(node.value, dict), "only mappings have keys"
    for key, line in node.repeated.items():
        text = f"{prefix}{shown(key)}: given before in line {node.value[key].line}; keep one of them"
        draft.complain(_Place(where, line), text)


def _take_override(draft: _Draft, override: str | Override, rank: int) -> None:
    if isinstance(override, str):
        name, equals, text = (part.strip() for part in override.partition("="))
        place = _Place("--set", rank=rank)
        if not equals or not name:
            draft.complain(place, f"{shown(override)}: section.key=value, such as train.lr=3e-4")
            return
        try:
            override = Override("--set", name, override_value(text))
        except YamlError as error:
            draft.complain(place, f"{shown(name)} = {shown(text)}: {error.reason}")
            return
    place = _Place(override.where, rank=rank)
    problem = key_problem(override.key, override.value)
    if problem is not None:
        draft.complain(place, problem)
        return
    section, _, key = override.key.partition(".")
    if key in SECTIONS[section].alternatives and override.value is not None:
        draft.forget(section, SECTIONS[section].alternatives)
    draft.entries[section, key] = _Entry(place, override.value)


def key_problem(name: str, value: Value) -> str | None:
    """What to say of a "section.key" that was to have a value; None where there is such a key."""
    section, dot, key = name.partition(".")
    if section in SECTIONS and key in SECTIONS[section].model_fields:
        return None
    if section in SECTIONS and not dot:
        return f"{section} = {shown(value)}: section.key=value; {section} is a whole section"
    meant = suggest_section(section) if dot and section not in SECTIONS else section
    return _unknown_key(meant, key or section, value, name)


def override_value(text: str) -> Value:
    """What --set takes a text for. YamlError for quotes and brackets that are not closed."""
    # Only quotes and brackets need a parser: everything else is one scalar, so that `eval.prompt=a: b # c` is text.
    return yaml.read(text).plain() if text[:1] in ('"', "'", "[", "{") else yaml.resolve(text)


def _unknown_key(section: str | None, key: str, value: Value, name: str | None = None) -> str:
    meant = suggest_key(section, key)
    advice = f"did you mean {' or '.join(meant)}?" if meant else "the built-in small.yaml shows every key"
    return f"{shown(name or f'{section}.{key}')} = {shown(value)}: no such key; {advice}"


def _unknown_section(name: str, node: Node) -> str:
    value = node.plain()
    meant = suggest_section(name)
    if node.value is None or isinstance(node.value, dict):
        advice = f"did you mean {meant}?" if meant else f"the sections are {', '.join(SECTIONS)}"
        return f"{shown(name)}: no such section; {advice}"
    keys = suggest_key(None, name)
    places = " or ".join("{1} in the section {0}".format(*key.split(".")) for key in keys)
    advice = f"did you mean {places}?" if keys else "keys stand in sections; the built-in small.yaml shows every key"
    return f"{shown(name)} = {shown(value)}: no section; {advice}"


def dump_config(cfg: RunConfig) -> str:
    """The complete config as YAML, every key present; parse_config reads it back to an equal config."""
    lines: list[str] = []
    for section, values in cfg.model_dump().items():
        lines += [f"{section}:", *(f"  {key}: {yaml.write(value)}" for key, value in values.items())]
    return "\n".join(lines) + "\n"


def json_schema() -> dict[str, Any]:
    """The JSON Schema (draft 7) of a config file, with which editors complete and check it."""
    sections = {name: section.model_json_schema() for name, section in SECTIONS.items()}
    for schema in sections.values():
        for titled in (schema, *schema["properties"].values()):
            titled.pop("title", None)  # the key's name again
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "gptlite config",
        "type": "object",
        "additionalProperties": False,
        "properties": sections,
    }
