"""The keys that a resumed run may change, and those that must be as they were."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gptlite.config.loading import parse_config
from gptlite.config.schema import RunConfig
from gptlite.errors import ConfigError
from gptlite.runs.run import CONFIG, Run

# When a run evaluates, saves and logs, how long it trains (the learning rate schedule follows the new length), on how
# many threads, and how its processes share it.
MAY_CHANGE = (
    "train.max_steps",
    "train.epochs",
    "train.max_minutes",
    "train.patience",
    "eval.",
    "save.",
    "log.",
    "sample.",
    "run.threads",
    "run.parallel",
)
# Where things lie; text and tokenizer are known by their fingerprints.
PLACES = ("data.source", "data.val_source", "data.dir", "tokenizer.from", "run.dir")
# How a batch is split, and what is kept of its forward pass.
WITHOUT_EFFECT = (*PLACES, "train.micro_batch_size", "run.checkpoint_activations")
OF_EACH_PROCESS = (*PLACES, "run.threads")  # threads change the rounding of sums but not what is exchanged


def saved_config(run: Run) -> RunConfig:
    """Return the config of a run, as it was trained."""
    return parse_config(run.config_text(), str(run.path / CONFIG))


def flat(cfg: RunConfig) -> Iterator[tuple[str, Any]]:
    """Yield (section.key, value) of a config, as JSON has them."""
    for section, values in cfg.model_dump(mode="json").items():
        for key, value in values.items():
            yield f"{section}.{key}", value


def reconcile(saved: RunConfig, wanted: RunConfig, name: str) -> RunConfig:
    """Return the config to resume with: `saved`, and what may change of `wanted`. ConfigError with all that may not."""
    changes: dict[str, object] = {}
    problems: dict[str, str] = {}  # by key
    before, defaults = dict(flat(saved)), dict(flat(RunConfig()))
    one, other = saved.train.from_, wanted.train.from_
    if one and other and Path(one).parent == Path(other).parent and Path(one).parent.name == "checkpoints":
        wanted = wanted.with_values({"train.from": one})  # which may have a better checkpoint by now
    for key, value in flat(wanted):
        # `auto` asks for what the rules chose, which is what was saved
        if value == before[key] or (value == "auto" == defaults[key]):
            continue
        if key.startswith(MAY_CHANGE):
            changes[key] = value
        else:
            problems[key] = f"{key} is {before[key]} in this run and cannot become {value}. Start a new run instead."
    if problems:
        sources = [problems[key] for key in ("tokenizer.from", "train.from") if key in problems]  # others follow
        raise ConfigError(sources or problems.values(), where=f"run {name}")
    return saved.with_values(changes)


def facts_of_process(cfg: RunConfig, **more: str) -> dict[str, str]:
    """Return what must be the same in all processes of a run: config, versions, and more, such as fingerprints."""
    versions = {name: importlib.metadata.version(name) for name in ("gptlite", "torch")}
    return {**more, **versions, **{key: str(value) for key, value in flat(cfg) if key not in OF_EACH_PROCESS}}


def deciding_values(cfg: RunConfig) -> dict[str, Any]:
    """Return the keys that decide the result and may not change, as a checkpoint records them."""
    return {key: value for key, value in flat(cfg) if not key.startswith(MAY_CHANGE + WITHOUT_EFFECT)}
