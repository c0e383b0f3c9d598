"""Start and resume runs. What can be refused is refused before torch is loaded and before a run is created.

start      a new run                          gptlite train
dry_run    what a new run would need          gptlite train --dry-run
resume     continue an existing run           gptlite train --resume RUN
resume_or_start                               gptlite train --name NAME --continue
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gptlite.compute.processes import is_main, world_size
from gptlite.compute.threads import check_threads
from gptlite.config.loading import find_config, load_config
from gptlite.config.schema import RunConfig
from gptlite.data.dataset.prepared import Prepared
from gptlite.data.preparing.fingerprint import compute_fingerprint
from gptlite.data.preparing.prepare import prepare
from gptlite.data.sources.sources import absolute_spec
from gptlite.errors import ConfigError, DataError, RunError
from gptlite.runs.find_text import check_given, find_text, tokenizer_of, with_tokenizer
from gptlite.runs.names import check_name
from gptlite.runs.run import TOKENIZER, TOKENIZER_FROM, Run, runs_folder
from gptlite.tokenizers.base import fingerprint_inputs
from gptlite.training.listener import Listener, SilentListener
from gptlite.training.reconcile import facts_of_process, reconcile, saved_config

if TYPE_CHECKING:
    from gptlite.training.dry_run import DryRun
    from gptlite.training.state import TrainState


@dataclass(frozen=True)
class Outcome:
    """A run, the text it was trained on, and the state it reached."""

    run: Run
    prepared: Prepared
    state: TrainState


def train(
    config: str | Path = "small.yaml",
    overrides: Sequence[str] = (),
    *,
    name: str | None = None,
    listener: Listener | None = None,
) -> Outcome:
    """Train a new run from Python. config: found as the command line finds it; overrides: "section.key=value"."""
    path = find_config(config)
    return start(load_config(path, overrides), base=path.stem, name=name, listener=listener)


def start(
    cfg: RunConfig,
    *,
    base: str,
    name: str | None = None,
    root: Path | None = None,
    listener: Listener | None = None,
    facts: Mapping[str, Any] | None = None,
) -> Outcome:
    """Train a new run called `name`, or the first free one of base, base-2, ...

    root: the folder of runs; None: where the config and the environment say. facts: for run.json.
    """
    listener, root = listener or SilentListener(), root or runs_folder(cfg.run.dir)
    if is_main():
        Run.check_free(root, name, base)
    return _start(cfg, lambda: Run.create(root, name, base), listener, facts or {})


def dry_run(
    cfg: RunConfig, *, base: str, name: str | None = None, root: Path | None = None, listener: Listener | None = None
) -> DryRun:
    """Say what `start` would do and need; refuse what it would refuse. The text is prepared, but no run is created."""
    if world_size() > 1:
        raise ConfigError(f"A dry run times one process, and there are {world_size()}. Start it without torchrun.")
    Run.check_free(root or runs_folder(cfg.run.dir), name, base)
    there = set(cfg.data.folder.glob("*"))
    listener = listener or SilentListener()
    cfg = with_tokenizer(cfg, listener.say)
    prepared = _prepare(cfg, listener)
    from gptlite.training import dry_run as timing

    return timing.dry_run(cfg, prepared, was_prepared=prepared.path in there)


def resume_or_start(
    cfg: RunConfig,
    *,
    name: str,
    root: Path | None = None,
    listener: Listener | None = None,
    facts: Mapping[str, Any] | None = None,
) -> Outcome:
    """Resume the run `name`, or start it if it does not exist, so that a command can be repeated until it is done."""
    listener, root = listener or SilentListener(), root or runs_folder(cfg.run.dir)
    run = Run(root / name)
    if run.started:
        check_text([run], cfg)
        return resume(run, as_recorded(cfg, run), listener=listener)
    check_name(name, name)
    return _start(cfg, lambda: Run.claim(root, name), listener, facts or {})


def resume(run: Run, wanted: RunConfig | None = None, *, listener: Listener | None = None) -> Outcome:
    """Resume a run from its newest valid checkpoint.

    wanted: the config asked for now; ConfigError where it contradicts that of the run. None: as it was.
    """
    listener = listener or SilentListener()
    with run.lock() if is_main() else nullcontext():
        run.check_config()
        if not run.is_sealed:
            listener.say(
                f"warning: run {run.name} was started by an earlier version of gptlite, so changes to its files since "
                "then cannot be noticed"
            )
        saved = saved_config(run)
        cfg = reconcile(saved, wanted, run.name) if wanted is not None else saved
        if world_size() > 1:
            check_processes(cfg, run.recorded("data", str), f"{run.name}, continued")
        prepared = _prepared_of(run, cfg, listener)
        from gptlite.training.session import start_resumed

        return Outcome(run, prepared, start_resumed(cfg, prepared, run, listener))


def with_absolute_paths(cfg: RunConfig) -> RunConfig:
    """The config with absolute paths of sources and prepared data, as a run records it."""
    data = cfg.data
    paths = {
        f"data.{key}": absolute_spec(given) if isinstance(given, str) else [absolute_spec(spec) for spec in given]
        for key, given in (("source", data.source), ("val_source", data.val_source))
        if given is not None
    }
    folder = str(cfg.data.folder.absolute())
    try:
        f"{paths}{folder}".encode()
    except UnicodeEncodeError:
        raise DataError(
            "a path in it is not valid UTF-8, so it cannot be recorded. Rename the folder.", repr(folder)
        ) from None
    return cfg.with_values({**paths, "data.dir": folder})


def _prepare(cfg: RunConfig, listener: Listener) -> Prepared:
    """Prepare and verify the text. What can be refused is refused before the minutes that this may take."""
    check_threads(cfg.run.threads)
    if cfg.run.device != "auto":
        from gptlite.compute.device import Hardware, choose_device

        choose_device(cfg.run.device, Hardware.detect())
    if world_size() > 1:
        check_processes(cfg, compute_fingerprint(cfg.data, cfg.tokenizer), "new")
    prepared = prepare(cfg.data, cfg.tokenizer, listener.say)
    prepared.check_block_size(cfg.model.block_size)
    prepared.verify()
    return prepared


def check_processes(cfg: RunConfig, text: str, run: str) -> None:
    """ConfigError in all processes unless all were started alike. text: its fingerprint. run: new or continued."""
    from gptlite.compute.rendezvous import check_same  # imports torch

    check_same(facts_of_process(cfg, run=run, text=text[:12]))


def _start(cfg: RunConfig, create: Callable[[], Run], listener: Listener, facts: Mapping[str, Any]) -> Outcome:
    asked = cfg.tokenizer.from_
    cfg = with_tokenizer(cfg, listener.say)
    prepared = _prepare(cfg, listener)
    cfg = with_absolute_paths(cfg)
    if asked is not None:
        # The new text has a copy of the tokenizer, and its name says which: the other run may be deleted or replaced.
        cfg = cfg.with_values({"tokenizer.from": str(prepared.path.absolute())})
        facts = {**facts, TOKENIZER_FROM: asked}
    # imports torch: only after everything that does not need it has been checked
    from gptlite.training.session import start_new

    run, state = start_new(cfg, prepared, create, listener, facts)
    return Outcome(run, prepared, state)


def _prepared_of(run: Run, cfg: RunConfig, listener: Listener) -> Prepared:
    """The verified text of a run: from the folder it names or where the project was moved to, or prepared again."""
    prepared = find_text(run, cfg)
    if prepared is None:
        listener.say(f"{run.recorded('prepared', str)} no longer exists; preparing the text again")
        with_its_tokenizer = cfg if cfg.tokenizer.from_ is None else tokenizer_of(run, cfg)
        prepared = prepare(cfg.data, with_its_tokenizer.tokenizer, listener.say)
    _check_same(run, prepared.manifest.fingerprint)
    prepared.verify()
    return prepared


def as_recorded(cfg: RunConfig, run: Run) -> RunConfig:
    """The config that was asked for as `run` would have recorded it: absolute paths, and its copy of a tokenizer."""
    saved, asked = saved_config(run).tokenizer, cfg.tokenizer.from_
    if asked is not None and saved.from_ is not None:
        try:
            found = with_tokenizer(cfg).tokenizer
            is_same = fingerprint_inputs(found)["fingerprint"] == run.info.get(TOKENIZER)
        except DataError:
            is_same = asked == run.info.get(TOKENIZER_FROM)
            if not is_same:
                raise
            check_given(cfg.tokenizer, saved, asked)
        if is_same:
            cfg = cfg.model_copy(update={"tokenizer": saved})
    return with_absolute_paths(cfg)


def check_text(runs: Sequence[Run], cfg: RunConfig) -> None:
    """RunError if the text that `cfg` names exists and is not the one that the runs were started with."""
    try:
        now = compute_fingerprint(cfg.data, with_tokenizer(cfg).tokenizer)
    except DataError:  # once prepared, a run no longer needs its source text, nor where its tokenizer came from
        return
    for run in runs:
        _check_same(run, now)


def _check_same(run: Run, now: str) -> None:
    before = run.recorded("data", str)
    if now != before:
        raise RunError(
            f"it was started on the text {before[:12]}, and the text or its settings have changed (now {now[:12]}). "
            "Restore the old text, or start a new run.",
            f"run {run.name}",
        )
