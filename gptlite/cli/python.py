"""`gptlite.train` and `gptlite.compare`: what the command line does, as functions for scripts and notebooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gptlite.cli.options import open_runs
from gptlite.cli.runs.diff import Verdict, judge_named
from gptlite.cli.terminal import Console
from gptlite.cli.train.command import make_request
from gptlite.cli.train.options import TrainOptions
from gptlite.compute.processes import leave_group
from gptlite.config.yaml import Value, write
from gptlite.errors import ConfigError
from gptlite.loggers.metrics import Listener
from gptlite.runs.significance import MARGIN
from gptlite.training.launch import open_session

if TYPE_CHECKING:
    from gptlite.training.session import Outcome


def train(
    config: str | Path | None = None,
    overrides: Sequence[str] | Mapping[str, Value] = (),
    *,
    data: str | Path | Sequence[str | Path] = (),
    minutes: float | None = None,
    name: str | None = None,
    init: str | Path | None = None,
    progress: bool = True,
    listener: Listener | None = None,
) -> Outcome:
    """Train a new run as `gptlite train` does, and return it, with `score`, `samples` and `path`.

    overrides: "section.key=value" each, or values by "section.key". progress: show messages and a bar, also in a
    notebook. listener: to follow training.
    """
    if isinstance(overrides, Mapping):
        overrides = [f"{key}={write(value)}" for key, value in overrides.items()]
    texts = [data] if isinstance(data, str | Path) else data
    options = TrainOptions(
        config=None if config is None else str(config),
        set_=overrides,
        data=[str(text) for text in texts],
        minutes=minutes,
        name=name,
        init=None if init is None else str(init),
    )
    if problems := options.problems():
        raise ConfigError(problems)
    listener = listener or Console(quiet=not progress)
    try:
        with open_session(make_request(options, listener), listener) as session:
            return session.train()
    finally:
        leave_group()


def compare(a: str | Path | Outcome, b: str | Path | Outcome, *, margin: float = MARGIN) -> Verdict:
    """Say which of two settings is better, as `gptlite runs diff` does: over all seeds of the two runs.

    a, b: names or folders of runs, or what `train` returned. margin: the largest difference of no relevance, in % of
    the score.
    """
    names = [str(run) if isinstance(run, str | Path) else str(run.path) for run in (a, b)]
    return judge_named(open_runs(names), margin)[2]
