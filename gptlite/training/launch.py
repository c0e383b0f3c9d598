"""Open the session of a run: a new one, or one that exists.

What can be refused is refused before torch is loaded and before a run is created. A new run and one that goes on differ
in where the config comes from and in what is restored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gptlite.compute.processes import is_main, world_size
from gptlite.config.loading import Override, load_config
from gptlite.config.schema import RunConfig
from gptlite.data.dataset.prepared import Prepared
from gptlite.data.preparing.fingerprint import compute_fingerprint
from gptlite.data.preparing.prepare import prepare
from gptlite.data.sources.sources import absolute_spec
from gptlite.errors import ConfigError, DataError, RunError, UserError
from gptlite.formatting import Say, say_nothing
from gptlite.loggers.metrics import Listener
from gptlite.runs.find import check_given, find_text, with_tokenizer
from gptlite.runs.run import CONFIG, TOKENIZER, TOKENIZER_FROM, Run, runs_folder
from gptlite.tokenizers.base import fingerprint_inputs
from gptlite.training.reconcile import facts_of_process, reconcile, saved_config

if TYPE_CHECKING:
    from gptlite.training.session import Session


@dataclass(frozen=True)
class Request:
    """What to train: `cfg` in a new run, or a run that exists.

    name: of the new run; None: the first free one of base, base-2, ...
    clock: the run whose clock it repeats; None: it has its own.
    run: one to continue. cfg: asked for now, or None for that of the run with `changes`.
    root: the folder of runs; None: where the config and the environment say. facts: of a new run, for run.json.
    """

    cfg: RunConfig | None = None
    name: str | None = None
    base: str = "run"
    clock: Run | None = None
    run: Run | None = None
    changes: Sequence[str | Override] = ()
    root: Path | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """The folder of a new run."""
        assert self.cfg is not None, "a new run has a config"
        return self.root or runs_folder(self.cfg.run.dir)


@contextmanager
def open_session(request: Request, listener: Listener | None = None) -> Iterator[Session]:
    """Prepare everything that a session trains with, and lock its run until the end.

    ConfigError where the config asked for contradicts that of the run that is continued.
    """
    listener, run = listener or Listener(), request.run
    if run is None:
        cfg, prepared, facts = prepare_new(request, listener)
        # imports torch: only after everything that does not need it has been checked
        from gptlite.training.session import open_new

        create = partial(Run.create, request.folder, request.name, request.base)
        with open_new(cfg, prepared, create, facts, listener, request.clock) as session:
            yield session
    else:
        with run.lock() if is_main() else nullcontext():
            cfg, prepared = find_inputs(run, request, listener)
            from gptlite.training.session import open_restored

            yield open_restored(cfg, prepared, run, listener)


def check_new(request: Request, listener: Listener, processes: int) -> None:
    """Prepare the text of a new run that several processes will train, and refuse what they would refuse."""
    cfg, prepared, _ = prepare_new(request, listener)
    from gptlite.compute.device import Hardware
    from gptlite.planning.auto import resolve

    manifest = prepared.manifest
    resolve(cfg, manifest.tokenizer.vocab_size, manifest.train.tokens, Hardware.detect(), processes)


def prepare_new(request: Request, listener: Listener) -> tuple[RunConfig, Prepared, dict[str, Any]]:
    """Return the config of a new run, its verified text, and facts for run.json.

    What can be refused is refused before the minutes that preparing a text may take.
    """
    assert request.cfg is not None, "a new run has a config"
    Run.check_free(request.folder, request.name, request.base)
    cfg, facts = with_source(request.cfg, listener.say), dict(request.facts)
    asked = cfg.tokenizer.from_
    cfg = with_tokenizer(cfg, listener.say)
    if cfg.run.device != "auto":
        from gptlite.planning.auto import resolve_compute

        resolve_compute(cfg.run, cfg.model.block_size)
    if world_size() > 1:
        check_processes(cfg, compute_fingerprint(cfg.data, cfg.tokenizer), "new")
    prepared = prepare(cfg.data, cfg.tokenizer, listener.say)
    prepared.check_block_size(cfg.model.block_size)
    prepared.verify()
    cfg = with_absolute_paths(cfg)
    if asked is not None:
        # The new text has a copy of the tokenizer, and its name says which: the other run may be deleted or replaced.
        cfg = cfg.with_values({"tokenizer.from": str(prepared.path.absolute())})
        facts[TOKENIZER_FROM] = asked
    return cfg, prepared, facts


def with_source(cfg: RunConfig, say: Say = say_nothing) -> RunConfig:
    """Return the config with what follows from the model that `train.from` names. UserError where it cannot be used."""
    if cfg.train.from_ is None:
        return cfg
    from gptlite.interop.source import with_shape  # imports torch

    return with_shape(cfg, cfg.train.from_, say)


def find_inputs(run: Run, request: Request, listener: Listener) -> tuple[RunConfig, Prepared]:
    """Reconcile the config of a locked run with what is asked for now, and find its text, or prepare it again."""
    run.check_config()
    cfg = saved_config(run)
    if request.cfg is not None:
        check_text([run], request.cfg)
        cfg = reconcile(cfg, as_recorded(request.cfg, run), run.name)
    elif request.changes:
        cfg = reconcile(cfg, load_config(run.path / CONFIG, request.changes), run.name)
    if run.replays and cfg.train != saved_config(run).train:
        raise ConfigError(
            "it repeats the clock of another run, so section train cannot change. Train a new run instead.",
            f"run {run.name}",
        )
    if world_size() > 1:
        check_processes(cfg, run.info["data"], f"{run.name}, continued")
    prepared = find_text(run, cfg)
    if prepared is None:
        listener.say(f"{run.info['prepared']} no longer exists; preparing the text again")
        its_own = {} if cfg.tokenizer.from_ is None else {"tokenizer.from": str(run.path.absolute())}
        prepared = prepare(cfg.data, with_tokenizer(cfg.with_values(its_own)).tokenizer, listener.say)
    check_same_text(run, prepared.manifest.fingerprint)
    prepared.verify()
    return cfg, prepared


def check_processes(cfg: RunConfig, data_fingerprint: str, run: str) -> None:
    """ConfigError in all processes unless all were started alike. run: new or continued."""
    from gptlite.compute.distributed import check_same  # imports torch

    check_same(facts_of_process(cfg, run=run, text=data_fingerprint[:12]))


def with_absolute_paths(cfg: RunConfig) -> RunConfig:
    """Return the config with absolute paths of sources and prepared data, as a run records it."""
    data = cfg.data
    paths = {
        f"data.{key}": absolute_spec(given) if isinstance(given, str) else [absolute_spec(spec) for spec in given]
        for key, given in (("source", data.source), ("val_source", data.val_source))
        if given is not None
    }
    folder = str(data.folder.absolute())
    try:
        f"{paths}{folder}".encode()
    except UnicodeEncodeError:
        advice = "a path in it is not valid UTF-8, so it cannot be recorded. Rename the folder."
        raise DataError(advice, repr(folder)) from None
    return cfg.with_values({**paths, "data.dir": folder})


def as_recorded(cfg: RunConfig, run: Run) -> RunConfig:
    """Return a config as `run` would have recorded it: absolute paths, and its copy of a tokenizer."""
    with suppress(UserError):  # the model that it began with may be gone
        cfg = with_source(cfg)
    saved, asked = saved_config(run).tokenizer, cfg.tokenizer.from_
    if asked is not None and saved.from_ is not None:
        try:
            tokenizer = with_tokenizer(cfg).tokenizer
            is_same = fingerprint_inputs(tokenizer)["fingerprint"] == run.info.get(TOKENIZER)
        except (DataError, RunError):  # the other run may be gone
            is_same = asked == run.info.get(TOKENIZER_FROM)
        if is_same:
            check_given(cfg.tokenizer, saved, asked)
            cfg = cfg.model_copy(update={"tokenizer": saved})
    return with_absolute_paths(cfg)


def check_text(runs: Sequence[Run], cfg: RunConfig) -> None:
    """RunError if the text that `cfg` names exists and is not the one that the runs were started with."""
    try:
        now = compute_fingerprint(cfg.data, with_tokenizer(cfg).tokenizer)
    except (DataError, RunError):  # once prepared, a run needs neither its source nor where its tokenizer came from
        return
    for run in runs:
        check_same_text(run, now)


def check_same_text(run: Run, now: str) -> None:
    """RunError unless the run was started on the text of this fingerprint."""
    before = run.info["data"]
    if now != before:
        raise RunError(
            f"it was started on the text {before[:12]}, and the text or its settings have changed (now {now[:12]}). "
            "Restore the old text, or start a new run.",
            f"run {run.name}",
        )
