"""A grid of configs: keys that take several values each, and every combination of these as a point with a name.

read_axes(["train.lr=1e-3,3e-3"])      what stands behind --sweep
points(axes, "small-sweep")            every combination, in the order in which they are trained
load_points(path, overrides, points)   the config of each, or every problem of all of them
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from gptlite.config.accepted import shown
from gptlite.config.loading import Override, key_problem, load_config, override_value
from gptlite.config.saved import shortened
from gptlite.config.schema import RunConfig
from gptlite.config.yaml import Value, YamlError, write
from gptlite.errors import ConfigError, Problem, gathered
from gptlite.files import TEMP_MARK

MOST = 1000  # points; whoever asks for more has mistaken a comma
LONGEST_NAME = 200  # bytes, as a run's may be
LONGEST_VALUE = 24  # characters of a value in a name

# Between commas: quoted text, a [list], or anything that begins otherwise.
_QUOTED = r""""(?:[^"\\]|\\.)*"|'(?:[^']|'')*'"""
_ITEM = re.compile(rf"""\s*({_QUOTED}|\[(?:{_QUOTED}|[^]"'])*]|[^\s,"'[{{][^,]*|)\s*(?:,|\Z)""")


@dataclass(frozen=True)
class SweepAxis:
    """A key and the values that it takes in turn."""

    key: str
    values: tuple[Value, ...]


@dataclass(frozen=True)
class Point:
    """One combination: a value for each key, and what its run is called."""

    name: str
    values: dict[str, Value]

    @property
    def settings(self) -> list[str]:
        """As --set takes them."""
        return [f"{key}={write(value)}" for key, value in self.values.items()]


def read_axes(words: Sequence[str], taken: Collection[str] = ()) -> list[SweepAxis]:
    """The keys and values that words such as "train.lr=1e-3,3e-3" name; `taken` are keys that have a value already.

    ConfigError with every problem.
    """
    problems: list[Problem] = []
    axes: list[SweepAxis] = []
    for word in words:
        with gathered(problems):
            axes.append(_read_axis(word))
    keys = [word.partition("=")[0].strip() for word in words]
    found: list[str] = []
    for key in dict.fromkeys(keys):
        if keys.count(key) > 1:
            found.append(f"{shown(key)} is given {keys.count(key)} times; give it once, with all of its values")
        if key in taken:
            found.append(f"{key} is given a single value too; leave one of the two out")
    if "run.dir" in keys:
        found.append("the runs of a sweep lie in one folder; choose it with --set run.dir=DIR")
    if (n_points := math.prod(len(axis.values) for axis in axes)) > MOST:
        found.append(f"these are {n_points:,} runs, and at most {MOST:,} are allowed; leave out values")
    problems += [Problem(sentence, "--sweep") for sentence in found]
    if problems:
        raise ConfigError(problems)
    return axes


def _read_axis(word: str) -> SweepAxis:
    key, equals, text = (part.strip() for part in word.partition("="))
    if not key or not equals:
        raise ConfigError(f"--sweep: {shown(word)}: section.key=value,value,..., such as train.lr=1e-3,3e-3")
    if (problem := key_problem(key, text)) is not None:
        raise ConfigError(f"--sweep: {problem}")
    typed = f"--sweep: {key} = {shown(text)}"
    items = split(text)
    if items is None:
        raise ConfigError(f"{typed}: values between commas, each quoted text, a [list] or plain; mend the quotes")
    if "" in items:
        raise ConfigError(f'{typed}: values between commas, none of them empty; write null or "" for nothing')
    try:
        values = tuple(override_value(item) for item in items)
    except YamlError as error:
        raise ConfigError(f"{typed}: {error.reason}") from error
    twice = [item for i, item in enumerate(items) if values[i] in values[:i]]
    if twice:
        raise ConfigError(f"{typed}: each value once; leave out one {twice[0]}")
    return SweepAxis(key, values)


def split(text: str) -> list[str] | None:
    """The pieces of a text between commas that stand outside of quotes and brackets; None where one never closes.

    >>> split("1e-3, 'a, b' ,[x, y]"), split("bpe,"), split("'a")
    (['1e-3', "'a, b'", '[x, y]'], ['bpe', ''], None)
    """
    items, at = [], 0
    while found := _ITEM.match(text, at):
        items.append(found[1].rstrip())
        if not found[0].endswith(","):
            return items
        at = found.end()
    return None


def points(axes: Sequence[SweepAxis], sweep: str) -> list[Point]:
    """Every combination; the last key changes fastest. Names begin with the sweep's and a number, and so sort."""
    short = shortened([axis.key for axis in axes])
    combined = list(itertools.product(*(axis.values for axis in axes)))
    digits = max(2, len(str(len(combined))))
    found = []
    for number, values in enumerate(combined, start=1):
        by_key = dict(zip([axis.key for axis in axes], values, strict=True))
        start = f"{sweep}-{number:0{digits}}"
        words = "".join(f"-{short[key]}={in_a_name(value)}" for key, value in by_key.items())
        words = words.replace(TEMP_MARK, "-tmp-")  # the mark of unfinished files
        kept = words.encode()[: max(0, LONGEST_NAME - len(start.encode()))].decode(errors="ignore")
        found.append(Point(start + kept, by_key))
    return found


def in_a_name(value: Value) -> str:
    """A value as file systems and shells take it: of a path its end.

    >>> in_a_name(1e-3), in_a_name("texts/a b.txt"), in_a_name(["x", "y"]), in_a_name(None)
    ('0.001', 'a-b.txt', 'x+y', 'null')
    """
    if isinstance(value, list):
        text = "+".join(map(in_a_name, value))
    elif isinstance(value, str):
        text = value.rstrip("/").rpartition("/")[2]
    else:
        text = str(value) if type(value) in (int, float) else write(value)
    return re.sub(r"[^\w.+-]+", "-", text)[:LONGEST_VALUE]


def names_of(sweep: str) -> re.Pattern[str]:
    """What the names of a sweep's points look like, whatever its grid."""
    return re.compile(rf"{re.escape(sweep)}-\d{{2,}}-[a-z][a-z\d_.]*=.*")


def load_points(path: Path, overrides: Sequence[str | Override], grid: Sequence[Point]) -> list[RunConfig]:
    """The config of each point: the file with overrides, then the point's values.

    ConfigError with every problem once; one that not every point has says where it is.
    """
    configs: list[RunConfig] = []
    found: dict[Problem, list[Point]] = {}
    for point in grid:
        problems: list[Problem] = []
        with gathered(problems):
            own = [Override("--sweep", key, value) for key, value in point.values.items()]
            configs.append(load_config(path, [*overrides, *own]))
        for problem in problems:
            found.setdefault(problem, []).append(point)
    if found:
        raise ConfigError([_placed(problem, where, len(grid)) for problem, where in found.items()])
    return configs


def _placed(problem: Problem, where: Sequence[Point], n_points: int) -> Problem:
    if len(where) == n_points:
        return problem
    others = f" and {len(where) - 1} more" if len(where) > 1 else ""
    return dataclasses.replace(problem, sentence=f"{problem.sentence} (in {where[0].name}{others})")
