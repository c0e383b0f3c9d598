"""Starting and continuing runs. What can be refused is refused before torch is loaded and before a run is made.

start      a new run                    gptlite train [--name NAME]
dry_run    what a new run would need    gptlite train --dry-run
resume     an existing run goes on      gptlite train --resume RUN
claim      whichever it takes           gptlite train --name NAME --continue
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gptlite.compute.processes import is_main, world_size
from gptlite.compute.threads import choose_threads
from gptlite.config.loading import find_config, load_config, parse_config
from gptlite.config.schema import RunConfig
from gptlite.data.fingerprint import compute_fingerprint
from gptlite.data.prepare import prepare
from gptlite.data.prepared import Prepared
from gptlite.data.sources import absolute_spec
from gptlite.errors import ConfigError, DataError, RunError
from gptlite.runs.run import CONFIG, Run, runs_folder
from gptlite.training.listener import Listener, SilentListener

if TYPE_CHECKING:
    from gptlite.training.dry_run import DryRun
    from gptlite.training.state import TrainState

# What a resumed run may change: when things are looked at, and how long training goes on (the schedule of learning
# rates follows the new length).
MAY_CHANGE = ("train.max_steps", "train.max_minutes", "train.patience", "eval.", "save.", "log.", "sample.")


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
    terminal: Listener | None = None,
) -> Outcome:
    """From Python: train a new run on a config found as the command line finds it, `overrides` as after --set."""
    path = find_config(config)
    return start(load_config(path, overrides), base=path.stem, name=name, terminal=terminal)


def start(
    cfg: RunConfig, *, base: str, name: str | None = None, root: Path | None = None, terminal: Listener | None = None
) -> Outcome:
    """Train a new run in `root` (None: where the config and the environment say): `name`, or the first free one of
    base, base-2, ..."""
    terminal, root = terminal or SilentListener(), root or runs_folder(cfg.run.dir)
    if is_main():
        Run.check_free(root, name, base)
    return _start(cfg, lambda: Run.create(root, name, base), terminal)


def dry_run(
    cfg: RunConfig, *, base: str, name: str | None = None, root: Path | None = None, terminal: Listener | None = None
) -> DryRun:
    """What `start` would do and need, refused where it would be. Text is prepared; no run is made."""
    if world_size() > 1:
        raise ConfigError(
            f"--dry-run = {world_size()} processes: one, which times its own work; start it without torchrun"
        )
    Run.check_free(root or runs_folder(cfg.run.dir), name, base)
    there = set(cfg.data.folder.glob("*"))
    prepared = _ready(cfg, terminal or SilentListener())
    from gptlite.training.dry_run import foresee

    return foresee(cfg, prepared, was_prepared=prepared.path in there)


def claim(cfg: RunConfig, *, name: str, root: Path | None = None, terminal: Listener | None = None) -> Outcome:
    """Continue the run `name`, or start it if it is absent: a command line that can be given again and again."""
    terminal, root = terminal or SilentListener(), root or runs_folder(cfg.run.dir)
    run = Run(root / name)
    if run.started:
        check_text([run], cfg)
        return resume(run, with_absolute_paths(cfg), terminal=terminal)
    Run.check_name(name, name)
    return _start(cfg, lambda: Run.claim(root, name), terminal)


def resume(run: Run, wanted: RunConfig | None = None, *, terminal: Listener | None = None) -> Outcome:
    """Continue a run from its newest valid checkpoint.

    wanted: the config asked for now; ConfigError where it contradicts what the run was started with. None: as it was.
    """
    terminal = terminal or SilentListener()
    with run.lock() if is_main() else nullcontext():
        saved = parse_config(run.config_text(), str(run.path / CONFIG))
        cfg = reconcile(saved, wanted, run.name) if wanted is not None else saved
        prepared = _prepared_of(run, cfg, terminal)
        from gptlite.training.trainer import go_on

        return Outcome(run, prepared, go_on(cfg, prepared, run, terminal))


def with_absolute_paths(cfg: RunConfig) -> RunConfig:
    """Sources that are paths, and the folder of prepared data, as they can be written into a run's config."""
    given = cfg.data.source
    source = absolute_spec(given) if isinstance(given, str) else [absolute_spec(spec) for spec in given]
    folder = str(cfg.data.folder.absolute())
    try:
        f"{source}{folder}".encode()
    except UnicodeEncodeError:
        raise DataError(f"{folder!r}: name = not UTF-8: a path that can be written down; rename the folder") from None
    return cfg.with_values({"data.source": source, "data.dir": folder})


def reconcile(saved: RunConfig, wanted: RunConfig, name: str) -> RunConfig:
    """The config to go on with: `saved`, with what may change taken from `wanted`. ConfigError for all that may not."""
    changes: dict[str, object] = {}
    problems = []
    before, defaults = saved.model_dump(), RunConfig().model_dump()
    for section, values in wanted.model_dump().items():
        for key, value in values.items():
            was = before[section][key]
            # `auto` asks for what the rules chose, and that is what was saved.
            if value == was or (value == "auto" == defaults[section][key]):
                continue
            if f"{section}.{key}".startswith(MAY_CHANGE):
                changes[f"{section}.{key}"] = value
            else:
                problems.append(
                    f"{section}.{key} is {was} in this run and cannot become {value}; start a new run instead"
                )
    if problems:
        raise ConfigError(problems, where=f"run {name}")
    return saved.with_values(changes)


def _ready(cfg: RunConfig, terminal: Listener) -> Prepared:
    """The text, prepared and whole. What may be refused comes before minutes of preparing it."""
    choose_threads(cfg.run.threads)
    if cfg.run.device != "auto":
        from gptlite.compute.device import resolve

        resolve(cfg.run, cfg.model.block_size)
    prepared = prepare(cfg.data, cfg.tokenizer, terminal.say)
    prepared.check_block_size(cfg.model.block_size)
    prepared.verify()
    return prepared


def _start(cfg: RunConfig, create: Callable[[], Run], terminal: Listener) -> Outcome:
    prepared = _ready(cfg, terminal)
    cfg = with_absolute_paths(cfg)
    # torch: not before everything that needs none has been checked.
    from gptlite.training.trainer import begin

    run, state = begin(cfg, prepared, create, terminal)
    return Outcome(run, prepared, state)


def _prepared_of(run: Run, cfg: RunConfig, terminal: Listener) -> Prepared:
    """The text of a run, whole: from the folder it names, or where its project was moved to; else prepared again."""
    prepared = find_text(run, cfg)
    if prepared is None:
        terminal.say(f"{run.recorded('prepared', str)} is gone: preparing the text again")
        prepared = prepare(cfg.data, cfg.tokenizer, terminal.say)
    _check_same(run, prepared.manifest.fingerprint)
    prepared.verify()
    return prepared


def find_text(run: Run, cfg: RunConfig) -> Prepared | None:
    """The prepared folder of a run; None where it is neither in its place nor in today's data.dir."""
    recorded = Path(run.recorded("prepared", str))
    places = (recorded, cfg.data.folder / recorded.name, RunConfig().data.folder / recorded.name)
    return next((Prepared(place) for place in places if (place / "manifest.json").is_file()), None)


def check_text(runs: Sequence[Run], cfg: RunConfig) -> None:
    """RunError where the text that `cfg` names is there and is not the one that the runs were started with."""
    try:
        now = compute_fingerprint(cfg.data, cfg.tokenizer)
    except DataError:  # a run needs its text no more once it is prepared
        return
    for run in runs:
        _check_same(run, now)


def _check_same(run: Run, now: str) -> None:
    before = run.recorded("data", str)
    if now != before:
        raise RunError(
            f"run {run.name}: data = {now[:12]}: it was started with {before[:12]}, and the text or its settings have "
            "changed; put the old text back, or start a new run"
        )
