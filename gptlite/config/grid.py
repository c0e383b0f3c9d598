"""A grid of configs: the values of each swept key, and every combination of them as a named point."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from gptlite.config import yaml
from gptlite.config.keys import explain_unknown_key
from gptlite.config.loading import Override
from gptlite.config.schema import RunConfig
from gptlite.config.yaml import Value, YamlError, shortened, shown, write
from gptlite.errors import ConfigError, Problem, gathered
from gptlite.storage.files import TEMP_MARK

MAX_NAME_BYTES = 200  # of a run
MAX_VALUE_LENGTH = 24  # characters of a value in a name


Axes: TypeAlias = dict[str, list[Value]]  # the values that each key takes in turn


@dataclass(frozen=True)
class Point:
    """One combination: the name of its run, and a value for each key."""

    name: str
    values: dict[str, Value]

    @property
    def settings(self) -> list[str]:
        """The values as text overrides: ["train.lr=0.001"]."""
        return [f"{key}={write(value)}" for key, value in self.values.items()]


def read_axes(texts: Sequence[str], taken: Collection[str] = ()) -> Axes:
    """Read keys with their values from texts such as "train.lr=1e-3,3e-3"; `taken` are keys set to a single value.

    The values are the items of a YAML list. Raises ConfigError with every problem.
    """
    problems: list[Problem] = []
    axes: Axes = {}
    for text in texts:
        with gathered(problems):
            key, values = _read_axis(text)
            if key in axes or key in taken:
                raise ConfigError(f"{key} is set more than once. Give it once, with all of its values.")
            axes[key] = values
    if problems:
        raise ConfigError(problems)
    return axes


def _read_axis(text: str) -> tuple[str, list[Value]]:
    key, equals, items = (part.strip() for part in text.partition("="))
    if not key or not equals:
        raise ConfigError(f"{shown(text)} is not of the form section.key=value,value, such as train.lr=1e-3,3e-3.")
    if unknown := explain_unknown_key(key):
        raise ConfigError(unknown)
    if key == "run.dir":
        raise ConfigError(
            "run.dir cannot be swept, because all runs of a sweep are in one folder. Set it to one value."
        )
    try:
        values = yaml.read(f"[{items}]").value
    except YamlError as error:
        raise ConfigError(f"{key} cannot be set to the values {shown(items)}: {error.sentence}") from error
    if not isinstance(values, list) or not values:
        raise ConfigError(f'{key} has no values. Write them between commas, null or "" for an empty one.')
    for i, value in enumerate(values):
        if value in values[:i]:
            raise ConfigError(f"{key} has the value {shown(value)} twice. Leave one out.")
    return key, values


def points(axes: Axes, sweep: str) -> list[Point]:
    """Combine all values; the last key changes fastest. Names sort: the sweep's name and a number come first."""
    short = shortened(list(axes))
    combined = list(itertools.product(*axes.values()))
    digits = max(2, len(str(len(combined))))
    grid = []
    for number, values in enumerate(combined, start=1):
        start = f"{sweep}-{number:0{digits}}"
        point = dict(zip(axes, values, strict=True))
        settings = "".join(f"-{short[key]}={value_in_name(value)}" for key, value in point.items())
        settings = settings.replace(TEMP_MARK, "-tmp-")  # the mark of unfinished files
        name = (start + settings).encode()[: max(MAX_NAME_BYTES, len(start.encode()))].decode(errors="ignore")
        grid.append(Point(name, point))
    return grid


def value_in_name(value: Value) -> str:
    """Write a value so that file systems and shells accept it; of a path, only its last part.

    >>> value_in_name(1e-3), value_in_name("texts/a b.txt"), value_in_name(["x", "y"]), value_in_name(None)
    ('0.001', 'a-b.txt', 'x+y', 'null')
    """
    if isinstance(value, list):
        text = "+".join(map(value_in_name, value))
    elif isinstance(value, str):
        text = value.rstrip("/").rpartition("/")[2]
    else:
        text = str(value) if type(value) in (int, float) else write(value)
    return re.sub(r"[^\w.+-]+", "-", text)[:MAX_VALUE_LENGTH]


def names_of(sweep: str) -> re.Pattern[str]:
    """Return the pattern of the names of a sweep's points, for any grid."""
    return re.compile(rf"{re.escape(sweep)}-\d{{2,}}-[a-z][a-z\d_.]*=.*")


def load_points(
    load: Callable[[Sequence[Override]], RunConfig], grid: Sequence[Point], where: str = "sweep"
) -> list[RunConfig]:
    """Load the config of each point. load: with the values of a point as overrides, whose place is `where`.

    Raises ConfigError with every problem once.
    """
    configs: list[RunConfig] = []
    problems: list[Problem] = []
    for point in grid:
        with gathered(problems):
            configs.append(load([Override(where, key, value) for key, value in point.values.items()]))
    if problems:
        raise ConfigError(list(dict.fromkeys(problems)))
    return configs
