"""Options that several commands share, and the config keys they set."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from typer import Argument, Context, Option

from gptlite.compute.processes import world_size
from gptlite.download import OFFLINE
from gptlite.errors import ConfigError, Problem, RunError, located
from gptlite.runs.checkpoint import Checkpoint
from gptlite.runs.run import Run, runs_folder

if TYPE_CHECKING:
    from gptlite.config.loading import Override

Opened = TypeVar("Opened", Run, Checkpoint)

DEFAULT_CONFIG = "small.yaml"
STANDARD_INPUT = "-"  # in place of a text's path

# The keys that --set accepts in commands that use only some; "sample.*" is the whole section.
SETTABLE = {
    "sample": ("sample.*", "data.encoding", "run.device", "run.threads", "run.attention"),
    "eval": (
        *("eval.batch_size", "data.dir", "data.encoding"),
        *("run.device", "run.precision", "run.attention", "run.threads", "run.deterministic"),
    ),
}

ConfigOption = Annotated[
    str | None,
    Option(
        *("--config", "-c"),
        metavar="FILE",
        help=f"A config: a path, or a name from ./configs or `gptlite config`. Default: {DEFAULT_CONFIG}; "
        "train chooses sizes for a text of --data instead.",
    ),
]
SetOption = Annotated[
    list[str] | None, Option("--set", metavar="SECTION.KEY=VALUE", help="Change a key of the config. Repeatable.")
]


def with_standard_input(data: list[str] | None) -> list[str] | None:
    """Return the values of --data, with the file that standard input was written to in place of "-"."""
    if not data or STANDARD_INPUT not in data:
        return data
    if world_size() > 1:
        raise ConfigError("several processes cannot share standard input. Save the text to a file.", "--data -")
    from gptlite.data.sources.sources import keep_standard_input

    with located("--data -"):
        path = keep_standard_input(sys.stdin.buffer)
    return list(dict.fromkeys(str(path) if text == STANDARD_INPUT else text for text in data))


def forbid_downloads(offline: bool) -> bool:
    """Allow no downloads, if --offline is given, in this process and in those that it starts."""
    if offline:
        os.environ[OFFLINE] = "1"
    return offline


DataOption = Annotated[
    list[str] | None,
    Option(
        metavar="TEXT",
        callback=with_standard_input,
        help="The text: a file, folder, glob or named data set, or - for standard input (data.source). Repeatable.",
    ),
]
OfflineOption = Annotated[
    bool,
    Option(
        "--offline",
        callback=forbid_downloads,
        help=f"Download nothing; name the file that is missing. The same as {OFFLINE}=1.",
    ),
]
RunArgument = Annotated[
    str | None,
    Argument(metavar="RUN", help="A run's name, its folder, or a checkpoint folder. Default: the newest run."),
]
ContextOption = Annotated[
    int | None,
    Option(
        "--context",
        metavar="N",
        help="Read up to N tokens at a time instead of block_size: for models without learned positions.",
        min=1,
        max=1 << 20,
    ),
]
CheckpointOption = Annotated[
    str | None, Option(metavar="best|latest|STEP", help="Which checkpoint of the run. Default: best.")
]


def find_config_file(config: str | None) -> Path:
    """Find the file of --config, or the default config."""
    from gptlite.config.loading import find_config

    name = config or DEFAULT_CONFIG
    with located(f"--config {name}"), located(f"--config {name}", at=name):
        return find_config(name)


def build_overrides(sets: Sequence[str] | None, data: Sequence[str] | None) -> list[str | Override]:
    """Return the changes to a config that --set and --data ask for."""
    from gptlite.config.loading import Override

    overrides: list[str | Override] = list(sets or ())
    if data:
        overrides.append(Override("--data", "data.source", data[0] if len(data) == 1 else list(data)))
    return overrides


@contextmanager
def located_text(data: Sequence[str] | None, init: str | None = None) -> Iterator[None]:
    """Let errors about `data.source` name --data where it was given, and those about `tokenizer.from` --init."""
    text, tokenizer = ("--data" if data else "data.source"), (f"--init {init}" if init else "tokenizer.from")
    with located(text, at="data.source"), located(tokenizer, at="tokenizer.from"):
        yield


def open_each(names: Iterable[str], open_one: Callable[[str], Opened]) -> list[Opened]:
    """Open runs or checkpoints by their names or folders. RunError where there is none, or one is given twice."""
    opened: dict[Path, Opened] = {}
    for name in names:
        one = open_one(name)
        if opened.setdefault(one.path.resolve(), one) is not one:
            raise RunError("this run is given twice. Leave one out.", name)
    return list(opened.values())


def option_name(param: Any) -> str:
    """Return the long name of an option."""
    return str(max(param.opts, key=len))


def given_options(context: Context) -> list[str]:
    """Return the long names of the options that were given, in the order of --help; --no-... is not among them."""
    unset: tuple[object, ...] = (None, False, (), [])
    return [option_name(param) for param in context.command.params if context.params.get(str(param.name)) not in unset]


def check_together(
    given: Mapping[str, str], excludes: Mapping[str, Sequence[str]], needs: Mapping[str, Sequence[str]]
) -> list[Problem]:
    """Return a problem for each option beside one that excludes it, and for each without one of those that it needs.

    given: by option or key, how it was typed.
    """
    pairs = [(option, other) for option, others in excludes.items() for other in others]
    found = [
        Problem(f"{given[other]} cannot be combined with {given[option]}. Leave one of them out.")
        for option, other in pairs
        if option in given and other in given
    ]
    found += [
        Problem(f"{given[option]} has no effect without {' or '.join(others)}. Add that, or leave it out.")
        for option, others in needs.items()
        if option in given and given.keys().isdisjoint(others)
    ]
    return found


def settable(command: str, key: str) -> bool:
    """Return whether `--set` of a command accepts a key."""
    return command not in SETTABLE or key.startswith(tuple(accepted.rstrip("*") for accepted in SETTABLE[command]))


def check_keys(command: str, overrides: Sequence[str] | None) -> list[str]:
    """Return the --set options of a command. Raises ConfigError for keys that it would ignore."""
    problems = [
        Problem(f"gptlite {command} does not use this key. It uses {', '.join(SETTABLE[command])}.", f"--set {key}")
        for override in overrides or ()
        if not settable(command, key := override.partition("=")[0].strip())
    ]
    if problems:
        raise ConfigError(problems)
    return list(overrides or ())


def open_runs(names: Sequence[str]) -> list[Run]:
    """Open the runs with these names or folders. RunError as of `open_each`."""
    return open_each(names, partial(Run.open, runs_folder()))
