"""Options that several commands share, and what they stand for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from gptlite.errors import ConfigError, located

if TYPE_CHECKING:
    from gptlite.config.loading import Override
    from gptlite.config.schema import RunConfig
    from gptlite.config.yaml import Value

DEFAULT_CONFIG = "small.yaml"

# Keys that --set takes where a command uses only some; "run.*" stands for a section.
SETTABLE = {
    "sample": ("sample.*", "run.device", "run.threads", "run.attention"),
    "eval": (
        *("eval.batch_size", "data.dir", "data.encoding", "data.normalize"),
        *("run.device", "run.precision", "run.attention", "run.threads", "run.deterministic"),
    ),
}

ConfigOption = Annotated[
    str | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        help=f"A config: a path, or a name in ./configs or of a built-in one. Default: {DEFAULT_CONFIG}.",
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Change one key of the config. May be repeated."),
]
DataOption = Annotated[
    list[str] | None,
    typer.Option(
        "--data", metavar="TEXT", help="The text: a file, folder, glob or known name (data.source). May be repeated."
    ),
]
RunArgument = Annotated[
    str | None,
    typer.Argument(metavar="[RUN]", help="A run's name or folder, or a checkpoint's. Default: the newest run."),
]
CheckpointOption = Annotated[
    str | None,
    typer.Option("--checkpoint", metavar="best|latest|STEP", help="Which of the run's checkpoints. Default: best."),
]


def read_config(config: str | None, sets: Sequence[str] | None, data: Sequence[str] | None) -> tuple[RunConfig, Path]:
    """The config that a command line asks for, and the file it came from. ConfigError with every problem."""
    from gptlite.config.loading import find_config, load_config

    path = find_config(config or DEFAULT_CONFIG)
    with located("--set"):
        return load_config(path, overrides_of(sets, data)), path


def overrides_of(sets: Sequence[str] | None, data: Sequence[str] | None) -> list[str | Override]:
    """What --set and --data change in a config."""
    from gptlite.config.loading import Override

    overrides: list[str | Override] = list(sets or ())
    if data:
        overrides.append(Override("--data", "data.source", data[0] if len(data) == 1 else list(data)))
    return overrides


def located_text(data: Sequence[str] | None) -> AbstractContextManager[None]:
    """Errors about the text name --data where it was given."""
    return located("--data", at="data.source") if data else nullcontext()


def used(options: Mapping[str, tuple[str, object]]) -> list[Override]:
    """Changes of the config that options stand for, those left out without effect: {"--seed": ("sample.seed", 7)}."""
    from gptlite.config.loading import Override

    return [
        Override(option, key, cast("Value", value)) for option, (key, value) in options.items() if value is not None
    ]


def settable(command: str, key: str) -> bool:
    """Whether --set of a command takes a key."""
    return command not in SETTABLE or key.startswith(tuple(accepted.rstrip("*") for accepted in SETTABLE[command]))


def check_keys(command: str, overrides: Sequence[str] | None) -> list[str]:
    """The --set options of a command that uses only some keys; ConfigError for those that would do nothing."""
    problems = [
        f"--set: {key}: gptlite {command} uses {', '.join(SETTABLE[command])}; leave it out"
        for override in overrides or ()
        if not settable(command, key := override.partition("=")[0].strip())
    ]
    if problems:
        raise ConfigError(problems)
    return list(overrides or ())
