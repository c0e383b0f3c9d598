"""Load a config: find the YAML file, apply overrides, and validate. An error names every problem of both.

    load_config(find_config("small"), ["train.lr=3e-4"])
    parse_config(text, "small.yaml")
    dump_config(cfg)                        the complete YAML, which parse_config reads back to an equal config

A file may extend another: `extends: NAME`, a file beside it or a shipped config. A value of the file replaces that of
the file it extends, an override those of both, and any problem of theirs. An empty section means its defaults.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from gptlite.config import yaml
from gptlite.config.keys import KEYS, explain_refusal, explain_unknown_key, explain_unknown_section, is_accepted
from gptlite.config.schema import SECTIONS, RunConfig
from gptlite.config.yaml import Document, Value, YamlError, shown
from gptlite.errors import ConfigError, Problem
from gptlite.formatting import and_more

SUFFIXES = (".yaml", ".yml")
MAX_BYTES = 65536  # ten times a config with a comment on every key
MAX_LISTED = 8  # configs
EXTENDS = "extends"

# Where a value was given: in which source, at which line or as which override, and what messages call that.
Place: TypeAlias = tuple[int, int, str | None]
EXTENDED, FILE, OVERRIDE = range(3)  # sources; a later one replaces an earlier one


@dataclass(frozen=True)
class Override:
    """A value from outside the file for the key "section.key". `where` is its place in messages, such as an option."""

    where: str
    key: str
    value: Value


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
    if path := next(_files(name, folders), None):
        return path
    where = shown(str(name))
    if os.path.isdir(name):
        raise ConfigError("this is a folder, but a config is a YAML file. Name a file in it.", where)
    searched = "" if Path(name).is_absolute() else " here, in configs/ or built in"
    raise ConfigError(f"there is no such config{searched}. {_existing(name, folders[1:])}", where)


def _files(name: str | Path, folders: Sequence[Path]) -> Iterator[Path]:
    """Yield the files of this name, with or without the suffix, in the order of the folders."""
    paths = (folder / f"{name}{suffix}" for folder in folders for suffix in ("", SUFFIXES[0]))
    return (path for path in paths if os.path.exists(path) and not os.path.isdir(path))  # unlike Path's, never raise


def _existing(name: str | Path, folders: Sequence[Path]) -> str:
    """List the configs in `folders`, the lessons last, and say which may be meant."""
    known = sorted({path.name for folder in folders for path in folder.glob("*") if path.suffix in SUFFIXES})
    stems = {Path(file).stem: file for file in known}
    close = difflib.get_close_matches(Path(name).stem, stems, n=1)
    advice = f"Did you mean {stems[close[0]]}?" if close else "Name one of these, or give a path."
    listed = sorted(known, key=lambda file: file.startswith("lesson-"))
    return f"The configs are {and_more(listed, MAX_LISTED)}. {advice}"


def load_config(path: Path | None, overrides: Sequence[str | Override] = ()) -> RunConfig:
    """Load the config in a file (None: the defaults) with overrides applied in order.

    An override is "section.key=value", the value a YAML scalar or [list], or an Override, whose value is used as it is.
    Raises ConfigError with every problem of the file and the overrides; those of text overrides have no place.
    """
    draft = _Draft()
    if path is not None:
        draft.take_file(_read_text(path), str(path))
    for number, override in enumerate(overrides):
        draft.take_override(override, number)
    return draft.validated()


def parse_config(text: str, where: str) -> RunConfig:
    """Parse the config in `text`; `where` is its place in messages. Raises ConfigError with every problem."""
    draft = _Draft()
    draft.take_file(text, where)
    return draft.validated()


def _read_text(path: Path) -> str:
    where = str(path)
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(
            f"the file cannot be read: {error.strerror}. Check the path and its permissions.", where
        ) from error
    if len(data) > MAX_BYTES:
        sentence = f"the file has more than {MAX_BYTES:,} bytes, but a config is short. Is this the right file?"
        raise ConfigError(sentence, where)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        byte = f"byte 0x{data[error.start]:02x} at offset {error.start}"
        sentence = f"the file is not UTF-8 text ({byte}). Save it as UTF-8, or name the right file."
        raise ConfigError(sentence, where) from None


def _parse(text: str, where: str) -> Document:
    try:
        document = yaml.read(text)
    except YamlError as error:
        raise ConfigError(error.sentence, f"{where}:{error.line}") from error
    if not isinstance(document.value, dict | None):
        raise ConfigError(f"a config is a mapping with the sections {', '.join(SECTIONS)}.", where)
    return document


@dataclass
class _Draft:
    """The values given so far by "section.key", each with its place, and what is wrong."""

    given: dict[str, tuple[Place, Value]] = field(default_factory=dict)
    problems: list[tuple[Place, str]] = field(default_factory=list)

    def take_file(self, text: str, where: str) -> None:
        """Take the values of a file, those of the file that it extends first."""
        document = _parse(text, where)
        if isinstance(document.value, dict) and EXTENDS in document.value:
            self.extend(document.value.pop(EXTENDS), where, f"{where}:{document.lines[EXTENDS,]}")
        self.take(document, where, FILE)
        if not self.given and not self.problems:
            self.problems.append(((FILE, 0, where), "no key is set here. Set at least one, or name another file."))

    def extend(self, name: Value, file: str, where: str) -> None:
        """Take the values of the config `name`, which `file` extends. Raises ConfigError at `where`."""
        folders = [Path(file).parent, builtin_folder("configs")]
        found = _files(name, folders) if isinstance(name, str) and Path(name).name == name else ()
        path = next((path for path in found if path.absolute() != Path(file).absolute()), None)
        if path is None:
            sentence = f"extends is {shown(name)}, but no file beside this one and no shipped config has this name."
            raise ConfigError(f"{sentence} {_existing(str(name), folders)}", where)
        document = _parse(_read_text(path), str(path))
        if isinstance(document.value, dict) and EXTENDS in document.value:
            further = shown(document.value[EXTENDS])
            advice = f"Extend {further}, and set the keys of {path.name} here."
            raise ConfigError(f"extends is {name}, but that file extends {further} itself. {advice}", where)
        self.take(document, str(path), EXTENDED)

    def take(self, document: Document, where: str, source: int) -> None:
        """Take the values that a document gives to known keys, and note a problem for everything else in it."""

        def refuse(line: int, sentence: str | None) -> None:
            self.problems.append(((source, line, f"{where}:{line}"), str(sentence)))

        sections = document.value if isinstance(document.value, dict) else {}
        for section, keys in sections.items():
            line = document.lines[section,]
            if section not in SECTIONS:
                refuse(line, explain_unknown_section(section, keys))
            elif not isinstance(keys, dict | None):
                refuse(line, f"{section} is a section, not {shown(keys)}. Write its keys indented below {section}:.")
            for key, value in keys.items() if section in SECTIONS and isinstance(keys, dict) else ():
                line, name = document.lines[section, key], f"{section}.{key}"
                if name in KEYS:
                    self.give(name, value, (source, line, f"{where}:{line}"))
                else:
                    refuse(line, explain_unknown_key(name))

    def take_override(self, override: str | Override, number: int) -> None:
        """Take the value of an override, or note what is wrong with it."""
        place = (OVERRIDE, number, None if isinstance(override, str) else override.where)
        try:
            name, value = _split_override(override) if isinstance(override, str) else (override.key, override.value)
        except ConfigError as error:
            self.problems += [(place, problem.sentence) for problem in error.problems]
            return
        if unknown := explain_unknown_key(name):
            self.problems.append((place, unknown))
        else:
            self.give(name, value, place)

    def give(self, name: str, value: Value, place: Place) -> None:
        """Take a value, and drop those of earlier sources that it replaces."""
        section, _, key = name.partition(".")
        for other in SECTIONS[section].replaces.get(key, ()) if value is not None else ():
            replaced = other if "." in other else f"{section}.{other}"
            if replaced in self.given and self.given[replaced][0][0] < place[0]:
                del self.given[replaced]
        self.given[name] = place, value

    def validated(self) -> RunConfig:
        """Return the config with these values. Raises ConfigError with every problem in the order of the places.

        A rule that is broken has the place of the key given last. It is not checked for a key that is refused itself.
        """
        accepted: dict[str, Value] = {}
        for name, (place, value) in self.given.items():
            if is_accepted(name, value):
                accepted[name] = value
            else:
                self.problems.append((place, explain_refusal(name, value)))
        refused = self.given.keys() - accepted
        for section, model in SECTIONS.items():
            values = {key: accepted.get(f"{section}.{key}", item.default) for key, item in model.fields().items()}
            for keys, sentence in model.rules(values):
                names = {f"{section}.{key}" for key in keys}
                if not names & refused:
                    self.problems.append((max(self.given[name][0] for name in names & self.given.keys()), sentence))
        if self.problems:
            in_order = sorted(self.problems, key=lambda problem: problem[0][:2])
            raise ConfigError([Problem(sentence, where) for (_, _, where), sentence in in_order])
        return RunConfig().with_values(accepted)


def _split_override(text: str) -> tuple[str, Value]:
    name, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not name:
        raise ConfigError(f"{shown(text)} is not of the form section.key=value, such as train.lr=3e-4.")
    try:
        return name, yaml.read_value(value)
    except YamlError as error:
        raise ConfigError(f"{shown(name)} cannot be set to {shown(value)}: {error.sentence}") from error


def dump_config(cfg: RunConfig) -> str:
    """Write the complete config as YAML, which parse_config reads back to an equal config."""
    lines: list[str] = []
    for section, values in cfg.model_dump().items():
        lines += [f"{section}:", *(f"  {key}: {yaml.write(value)}" for key, value in values.items())]
    return "\n".join(lines) + "\n"
