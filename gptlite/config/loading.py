"""Load a config: find the YAML file, apply overrides, and validate. An error names every problem of both.

    load_config(find_config("small"), ["train.lr=3e-4"])
    parse_config(text, "small.yaml")
    dump_config(cfg)                        the complete YAML, which parse_config reads back to an equal config

An override replaces the value in the file, and any problem of that value. An empty section means its defaults.
"""

from __future__ import annotations

import difflib
import itertools
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from pydantic import ValidationError

from gptlite.config import yaml
from gptlite.config.accepted import explain_refusal
from gptlite.config.schema import SECTIONS, RunConfig
from gptlite.config.suggest import SYNONYMS, explain_key, suggest_key, suggest_section
from gptlite.config.yaml import Value, YamlError, shown
from gptlite.errors import ConfigError, Problem

SUFFIXES = (".yaml", ".yml")
MAX_BYTES = 65536  # ten times a config with a comment on every key
MAX_PROBLEMS = 100  # the YAML of another program would have thousands


@dataclass(frozen=True)
class Override:
    """A value from outside the file for the key "section.key". `where` is its place in messages, such as an option."""

    where: str
    key: str
    value: Value


class _Place(NamedTuple):
    """Where a value was given. Places sort by the file's lines, then by overrides."""

    number: int  # of the override; 0 for the file
    line: int
    name: str | None

    def problem(self, sentence: str) -> Problem:
        return Problem(sentence, f"{self.name}:{self.line}" if self.line else self.name)


class _Given(NamedTuple):
    value: Value
    place: _Place


_Values: TypeAlias = dict[tuple[str, str], _Given]  # by section and key
_Problems: TypeAlias = list[tuple[_Place, str]]


def builtin_folder(kind: Literal["configs", "data"]) -> Path:
    """Return the folder of shipped configs or data-set cards: inside an installed package, else in the checkout."""
    package = Path(__file__).parents[1]
    inside = package / "builtin" / kind
    return inside if inside.is_dir() else package.parent / kind


def find_config(name: str | Path) -> Path:
    """Find a config file: `name` as a path, else in ./configs, else a shipped one; ".yaml" may be left out.

    Raises ConfigError, which lists the configs that exist.
    """
    folders = [Path(), Path("configs"), builtin_folder("configs")]
    for folder in folders:
        for suffix in ("", SUFFIXES[0]):
            path = folder / f"{name}{suffix}"
            if os.path.exists(path) and not os.path.isdir(path):  # unlike Path's, these never raise
                return path
    where = shown(str(name))
    if os.path.isdir(name):
        raise ConfigError("this is a folder, but a config is a YAML file. Name a file in it.", where)
    known = sorted({path.name for folder in folders[1:] for path in folder.glob("*") if path.suffix in SUFFIXES})
    stems = {Path(file).stem: file for file in known}
    close = difflib.get_close_matches(Path(name).stem, stems, n=1)
    advice = f"Did you mean {stems[close[0]]}?" if close else "Name one of these, or give a path."
    searched = "" if Path(name).is_absolute() else " here, in configs/ or built in"
    raise ConfigError(f"there is no such config{searched}. The configs are {_listed(known)}. {advice}", where)


def _listed(files: Sequence[str]) -> str:
    """The names of configs, with the first and the number of the lessons, which are many."""
    lessons = [file for file in files if file.startswith("lesson-")]
    more = f"{len(lessons) - 1} more lesson-*.yaml"
    named = [more if file in lessons[1:2] else file for file in files if file not in lessons[2:]]
    return ", ".join(named)


def load_config(
    path: Path | None, overrides: Sequence[str | Override] = (), defaults: Mapping[str, Value] | None = None
) -> RunConfig:
    """Load the config in a file (None: the defaults) with overrides applied in order.

    An override is "section.key=value", the value a YAML scalar or [list], or an Override, whose value is used as it is.
    defaults: in place of the schema's, by "section.key"; they count as not given.
    Raises ConfigError with every problem of the file and the overrides; those of text overrides have no place.
    """
    values, problems = ({}, []) if path is None else _read_values(_read_text(path), str(path))
    for number, override in enumerate(overrides, start=1):
        _apply(override, number, values, problems)
    return _validated(values, problems, defaults or {})


def parse_config(text: str, where: str) -> RunConfig:
    """Parse the config in `text`; `where` is its place in messages. Raises ConfigError with every problem."""
    return _validated(*_read_values(text, where), {})


def _read_text(path: Path) -> str:
    where = str(path)
    if path.is_dir():
        raise ConfigError("this is a folder, but a config is a YAML file. Name a file in it.", where)
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError("there is no such file. Check the path.", where) from None
    except OSError as error:
        raise ConfigError(f"the file cannot be read ({error.strerror}). Check its permissions.", where) from error
    if len(data) > MAX_BYTES:
        sentence = f"the file has more than {MAX_BYTES:,} bytes, but a config is short. Is this the right file?"
        raise ConfigError(sentence, where)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        byte = f"byte 0x{data[error.start]:02x} at offset {error.start}"
        sentence = f"the file is not UTF-8 text ({byte}). Save it as UTF-8, or name the right file."
        raise ConfigError(sentence, where) from None


def _read_values(text: str, where: str) -> tuple[_Values, _Problems]:
    """Return the values that `text` gives to known keys, and a problem for everything else in it."""
    try:
        document = yaml.read(text)
    except YamlError as error:
        raise ConfigError(error.sentence, f"{where}:{error.line}") from error
    if not isinstance(document.value, dict | None):
        raise ConfigError(f"a config is a mapping with the sections {', '.join(SECTIONS)}.", where)
    values: _Values = {}
    names = _check_names(document.value or {})
    problems = [
        (_Place(0, document.lines[path], where), sentence) for path, sentence in itertools.islice(names, MAX_PROBLEMS)
    ]
    for path, line in document.repeated.items():
        sentence = f"{shown('.'.join(path))} was given before, in line {document.lines[path]}. Keep one of them."
        problems.append((_Place(0, line, where), sentence))
    if len(problems) >= MAX_PROBLEMS:
        last = f"These are the first {MAX_PROBLEMS} problems. Is this the right file?"
        raise ConfigError([*_in_order(problems)[:MAX_PROBLEMS], Problem(last, where)])
    for section, keys in (document.value or {}).items():
        if section in SECTIONS and isinstance(keys, dict):
            for key, value in keys.items():
                if key in SECTIONS[section].fields():
                    values[section, key] = _Given(value, _Place(0, document.lines[section, key], where))
    if not values and not problems:
        problems.append((_Place(0, 0, where), "no key is set here. Set at least one, or name another file."))
    return values, problems


def _check_names(data: dict[str, Value]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the path and the problem of each unknown section and key, and of each section that is not a mapping."""
    for section, keys in data.items():
        if section not in SECTIONS:
            yield (section,), _unknown_section(section, keys)
        elif isinstance(keys, dict):
            for key in keys:
                if key not in SECTIONS[section].fields():
                    yield (section, key), _unknown_key(f"{section}.{key}", section)
        elif keys is not None:
            yield (section,), f"{section} is a section, not {shown(keys)}. Write its keys indented below {section}:."


def _apply(override: str | Override, number: int, values: _Values, problems: _Problems) -> None:
    """Take the value of an override, or note what is wrong with it."""
    place = _Place(number, 0, None if isinstance(override, str) else override.where)
    try:
        name, value = _split_override(override) if isinstance(override, str) else (override.key, override.value)
        check_key(name)
    except ConfigError as error:
        problems += [(place, problem.sentence) for problem in error.problems]
        return
    section, _, key = name.partition(".")
    if value is not None:
        alternatives = SECTIONS[section].alternatives
        for other in (*(alternatives if key in alternatives else ()), *SECTIONS[section].decides.get(key, ())):
            if (section, other) in values and values[section, other].place.number == 0:
                del values[section, other]
    values[section, key] = _Given(value, place)


def _split_override(text: str) -> tuple[str, Value]:
    name, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not name:
        raise ConfigError(f"{shown(text)} is not of the form section.key=value, such as train.lr=3e-4.")
    try:
        return name, yaml.read_value(value)
    except YamlError as error:
        raise ConfigError(f"{shown(name)} cannot be set to {shown(value)}: {error.sentence}") from error


def check_key(name: str) -> None:
    """Raise ConfigError unless `name` is a "section.key" of the config."""
    section, dot, key = name.partition(".")
    if section not in SECTIONS:
        raise ConfigError(_unknown_key(name, suggest_section(section) if dot else section))
    if not dot:
        meant = next((key for key, names in SYNONYMS.items() if section in names.split()), None)
        advice = f"Did you mean {meant}?" if meant else "Set one of its keys: section.key=value."
        raise ConfigError(f"{section} is a whole section. {advice}")
    if key not in SECTIONS[section].fields():
        raise ConfigError(_unknown_key(name, section))


def _unknown_key(name: str, section: str | None) -> str:
    meant = suggest_key(section, name.partition(".")[2] or name)
    near = f"Did you mean {' or '.join(meant)}?" if meant else "The built-in small.yaml lists every key."
    advice = explain_key(name) or near
    return f"{shown(name)} is not a key of the config. {advice}"


def _unknown_section(name: str, value: Value) -> str:
    if isinstance(value, dict | None):
        meant = suggest_section(name)
        advice = f"Did you mean {meant}?" if meant else f"The sections are {', '.join(SECTIONS)}."
        return f"{shown(name)} is not a section of the config. {advice}"
    keys = [key.split(".") for key in suggest_key(None, name)]
    places = " or ".join(f"{key} in the section {section}" for section, key in keys)
    near = f"Did you mean {places}?" if keys else "The built-in small.yaml lists every section and key."
    advice = explain_key(name) or near
    return f"{shown(name)} is not inside a section. {advice}"


def _validated(values: _Values, problems: _Problems, defaults: Mapping[str, Value]) -> RunConfig:
    """Return the config with these values. Raises ConfigError with `problems` and those of the values."""
    data = {name: _defaults(name, defaults) for name in SECTIONS}
    for (section, key), given in values.items():
        data[section][key] = given.value
    try:
        cfg = RunConfig.model_validate(data)
    except ValidationError as error:
        # An error at a key has the location (section, key, ...), a broken rule only (section,).
        found = (detail["loc"] for detail in error.errors(include_url=False))
        refused = dict.fromkeys((str(location[0]), str(location[1])) for location in found if len(location) > 1)
        for section, key in refused:
            given = values[section, key]
            problems.append((given.place, explain_refusal(section, key, given.value)))
        problems += _broken_rules(values, refused, defaults)
    if problems:
        raise ConfigError(_in_order(problems))
    return cfg


def _defaults(section: str, defaults: Mapping[str, Value]) -> dict[str, Value]:
    """Those of one section, by their keys in it."""
    return {name.partition(".")[2]: value for name, value in defaults.items() if name.startswith(f"{section}.")}


def _broken_rules(
    values: _Values, refused: Collection[tuple[str, str]], defaults: Mapping[str, Value]
) -> Iterator[tuple[_Place, str]]:
    """Yield the problem of each rule between keys that were not refused, at the place of the key given last."""
    for name, section in SECTIONS.items():
        unset = {key: field.default for key, field in section.fields().items()} | _defaults(name, defaults)
        given = {key: found for (own, key), found in values.items() if own == name}
        for rule in section.rules:
            if any((name, key) in refused for key in rule.keys):
                continue
            sentence = rule.problem(unset | {key: found.value for key, found in given.items()})
            if sentence is not None:
                yield max(given[key].place for key in rule.keys if key in given), sentence


def _in_order(problems: _Problems) -> list[Problem]:
    return [place.problem(sentence) for place, sentence in sorted(problems, key=lambda each: each[0][:2])]


def dump_config(cfg: RunConfig) -> str:
    """Write the complete config as YAML, which parse_config reads back to an equal config."""
    lines: list[str] = []
    for section, values in cfg.model_dump().items():
        lines += [f"{section}:", *(f"  {key}: {yaml.write(value)}" for key, value in values.items())]
    return "\n".join(lines) + "\n"
