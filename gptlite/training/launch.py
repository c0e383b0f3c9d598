"""Starting and continuing runs. What can be refused is refused before torch is loaded and before anything is written.

start      a new run                    gptlite train [--name NAME]
resume     an existing run goes on      gptlite train --resume RUN
claim      whichever it takes           gptlite train --name NAME --continue
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gptlite.config.loading import find_config, load_config, parse_config
from gptlite.config.schema import RunConfig
from gptlite.data.prepare import prepare
from gptlite.data.prepared import Prepared
from gptlite.data.sources import open_source
from gptlite.errors import ConfigError, RunError
from gptlite.runs.rundir import Run
from gptlite.training.terminal import Silent, Terminal

if TYPE_CHECKING:
    from gptlite.training.state import TrainState

# What a resumed run may change: when things are looked at, and how long training goes on (the schedule of learning
# rates follows the new length).
MAY_CHANGE = ("train.max_steps", "train.patience", "eval.", "save.", "log.", "sample.", "run.dir")


@dataclass(frozen=True)
class Outcome:
    """Where a run lies, what it was trained on, and what it reached."""

    run: Run
    prepared: Prepared
    state: TrainState


def train(
    config: str | Path = "small.yaml",
    overrides: Sequence[str] = (),
    *,
    name: str | None = None,
    root: str | Path = "runs",
    terminal: Terminal | None = None,
) -> Outcome:
    """From Python: train a new run on a config found as the command line finds it, `overrides` as after --set."""
    path = find_config(config)
    return start(load_config(path, overrides), root=Path(root), base=path.stem, name=name, terminal=terminal)


def is_main() -> bool:
    """Whether this process is the one that writes: torchrun numbers them."""
    return os.environ.get("RANK", "0") == "0"


def start(
    cfg: RunConfig, *, root: Path, base: str, name: str | None = None, terminal: Terminal | None = None
) -> Outcome:
    """Train a new run: `name`, or the first free one of base, base-2, ..."""
    terminal = terminal or Silent()
    if name is not None and is_main():
        Run.check_free(root, name)
    prepared, cfg = _prepare(cfg, terminal)
    # torch: not before everything that needs none has been checked.
    from gptlite.training.session import begin

    run, state = begin(cfg, prepared, lambda: Run.create(root, name, base), terminal)
    return Outcome(run, prepared, state)


def resume(
    run: Run, wanted: RunConfig | None = None, *, prepared: Prepared | None = None, terminal: Terminal | None = None
) -> Outcome:
    """Continue a run from its newest valid checkpoint.

    wanted: the config asked for now, and prepared: its text; ConfigError or RunError where they contradict what the
    run was started with. None of them: as it was.
    """
    terminal = terminal or Silent()
    with _lock(run):
        saved = parse_config(run.config_text(), str(run.path / "config.yaml"))
        cfg = reconcile(saved, wanted, run.name) if wanted is not None else saved
        text = _prepared_of(run, cfg, terminal)
        if prepared is not None and prepared.manifest.fingerprint != text.manifest.fingerprint:
            raise RunError(
                f"run {run.name}: data = {text.path.name}: the text or its settings are now {prepared.path.name}; "
                "put the old text back, or start a run of another name"
            )
        from gptlite.training.session import go_on

        return Outcome(run, text, go_on(cfg, text, run, terminal))


def claim(cfg: RunConfig, *, root: Path, name: str, terminal: Terminal | None = None) -> Outcome:
    """Continue the run `name`, or start it if it is absent: a command line that can be given again and again."""
    terminal = terminal or Silent()
    prepared, cfg = _prepare(cfg, terminal)
    run = Run.claim(root, name) if is_main() else Run(root / name)
    if run.started:
        return resume(run, cfg, prepared=prepared, terminal=terminal)
    from gptlite.training.session import begin

    run, state = begin(cfg, prepared, lambda: run, terminal)
    return Outcome(run, prepared, state)


def reconcile(saved: RunConfig, wanted: RunConfig, name: str) -> RunConfig:
    """The config to go on with: `saved`, with what may change taken from `wanted`. ConfigError for all that may not."""
    changes: dict[str, object] = {}
    problems = []
    for section, values in wanted.model_dump().items():
        before = saved.model_dump()[section]
        for key, value in values.items():
            full = f"{section}.{key}"
            if value == before[key] or value == "auto":
                continue
            if full.startswith(MAY_CHANGE):
                changes[full] = value
            else:
                problems.append(
                    f"run {name}: {full} = {value}: it was started with {before[key]}; leave it so, or start a new run"
                )
    if problems:
        raise ConfigError(problems)
    return saved.with_values(changes)


def _prepare(cfg: RunConfig, terminal: Terminal) -> tuple[Prepared, RunConfig]:
    """The prepared text, long enough for the model, and the config with absolute paths.

    Every process calls it: one makes the folder, the others wait for it.
    """
    prepared = prepare(cfg.data, cfg.tokenizer, terminal.say)
    prepared.check_block_size(cfg.model.block_size)
    folder = Path(cfg.data.dir).expanduser().absolute()
    return prepared, cfg.with_values({"data.source": absolute_source(cfg), "data.dir": str(folder)})


def absolute_source(cfg: RunConfig) -> str | list[str]:
    """data.source as it can be written into a config that is used elsewhere."""
    given, data = cfg.data.source, cfg.data
    opened = [
        open_source(spec, data.encoding, data.normalize).spec for spec in ([given] if isinstance(given, str) else given)
    ]
    return opened[0] if isinstance(given, str) else opened


def _prepared_of(run: Run, cfg: RunConfig, terminal: Terminal) -> Prepared:
    """The text of a run: the folder it names; prepared again from the sources if that is gone."""
    folder = Path(run.info["prepared"])
    if (folder / "manifest.json").is_file():
        return Prepared(folder)
    terminal.say(f"{folder} is gone: preparing the text again")
    return _prepare(cfg, terminal)[0]


def _lock(run: Run) -> AbstractContextManager[None]:
    return run.lock() if is_main() else nullcontext()
