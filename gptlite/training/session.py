"""One session of a run: start a new one or resume it, train to the end, and record what happened."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from gptlite.compute.choice import GIVEN
from gptlite.compute.device import settings
from gptlite.compute.matmul_flops import warn_of_emulation
from gptlite.compute.memory import memory_of, resident_bytes
from gptlite.compute.processes import world_size
from gptlite.config.loading import dump_config
from gptlite.config.schema import RunConfig
from gptlite.data.dataset.prepared import Prepared
from gptlite.errors import ConfigError, RunError, UserError
from gptlite.formatting import counted
from gptlite.loggers.metrics import MetricLog
from gptlite.planning.plan import plan_run
from gptlite.runs.find import find_latest, none_left
from gptlite.runs.run import Run
from gptlite.training.checkpointing import Restored, restore
from gptlite.training.dry_run import expected_evaluation_updates
from gptlite.training.listener import Listener
from gptlite.training.logging_setup import open_log
from gptlite.training.loop import is_done, save_initial, train
from gptlite.training.reconcile import inexact_because
from gptlite.training.run_info import run_info
from gptlite.training.setup import Setup, build, memory_errors, resolve_here
from gptlite.training.signals import Signals
from gptlite.training.state import TrainState
from gptlite.training.trainer import Trainer


def start_new(
    cfg: RunConfig, prepared: Prepared, create: Callable[[], Run], listener: Listener, facts: Mapping[str, Any]
) -> tuple[Run, TrainState]:
    """Train a new run. Its folder is created once nothing can be refused any more. facts: more for run.json."""
    libraries = resident_bytes()
    setup = resolve_here(cfg, prepared)
    trainer = build(setup.cfg, prepared)
    is_main = trainer.dist.is_main
    run = Run(Path(trainer.dist.from_main(str(create().path) if is_main else "")))
    with run.lock() if is_main else nullcontext():
        if is_main:
            if run.started:
                raise RunError("another process has just started this run. Give the command again.", f"run {run.name}")
            run.write_setup({**run_info(setup, trainer, prepared), **facts}, dump_config(setup.cfg))
            plan = plan_run(
                setup.cfg,
                prepared,
                available_memory=memory_of(trainer.compute.device),
                libraries=libraries,
            )
            for line in plan.lines():
                listener.say(line)
        return run, run_session(setup, trainer, prepared, run, None, listener)


def start_resumed(cfg: RunConfig, prepared: Prepared, run: Run, listener: Listener) -> TrainState:
    """Train a locked run on from its newest valid checkpoint; from the beginning where it has none.

    On another number of processes, the micro-batches are chosen again; the batches stay the same.
    """
    if run.recorded("world_size", int) != world_size():
        cfg = cfg.with_values({"train.micro_batch_size": "auto"})
    setup = resolve_here(cfg, prepared)
    trainer = build(setup.cfg, prepared)
    restored = restore_newest(trainer, run, listener)
    check_length(cfg.train.epochs, trainer.cfg, restored, run, listener)
    # Nothing is written before this line: a resume that is refused leaves the run as it was.
    trainer.dist.barrier()  # every process has read before the main one removes leftovers
    if trainer.dist.is_main:
        run.remove_leftovers()
        info = run_info(setup, trainer, prepared)
        if warning := inexact_because(run.info, info):
            listener.say(warning)
        info = {key: value for key, value in info.items() if key not in ("argv", "git_commit")}
        info["reasons"] = first_reasons(run.info.get("reasons"), info["reasons"])
        run.write_setup({**run.info, **info, "resumed_by": sys.argv}, dump_config(setup.cfg))
    return run_session(setup, trainer, prepared, run, restored, listener)


def restore_newest(trainer: Trainer, run: Run, listener: Listener) -> Restored | None:
    """Load the newest valid checkpoint into the trainer, the same one in all processes; None where none was ever saved.

    RunError where they are gone, where none can be used, or where the processes found different ones.
    """
    restored, problem = None, None
    try:
        restored = find_latest(
            run.checkpoints,
            listener.say,
            lambda each: restore(each, trainer.model, trainer.optimizers, trainer.identity, trainer.cfg),
        )
        if restored is None and run.has_trained:
            raise none_left(run.checkpoints)
    except UserError as error:  # the other processes must not wait for this one
        problem = error
    found = "none" if restored is None else f"step {restored.state.step} ({restored.digest[:12]})"
    of_main = trainer.dist.from_main(found)
    if trainer.dist.largest(int(problem is not None or found != of_main)) and problem is None:
        problem = RunError(
            f"the processes found different checkpoints: the first one {of_main}, this one {found}, or one that cannot "
            "be read. Give all of them the same files.",
            str(run.checkpoints),
        )
    if problem is not None:
        raise problem
    return restored


def check_length(epochs: float | None, cfg: RunConfig, restored: Restored | None, run: Run, listener: Listener) -> None:
    """ConfigError where max_steps is below the steps already made; a line where there is nothing left to train.

    epochs: of which max_steps were made, if that was asked for now.
    """
    if restored is None:
        return
    state = restored.state
    if cfg.train.updates is not None and cfg.train.updates < state.step:
        wanted, advice = f"train.max_steps is {cfg.train.updates}", f"Use train.max_steps={state.step} or more."
        if epochs is not None:
            wanted, advice = f"train.epochs is {epochs:g}, which is {counted(cfg.train.updates, 'update')}", "Raise it."
        raise ConfigError(f"{wanted}, but {run.name} has already made {state.step} updates. {advice}")
    if is_done(state, cfg.train) and not state.evaluation_due:
        by_count = "max_steps" if epochs is None else "epochs"
        length = by_count if cfg.train.max_minutes is None else "max_minutes"
        listener.say(f"{run.name} is finished after {state.step} updates. To train on, raise train.{length}.")


def first_reasons(before: object, now: dict[str, dict[str, object]]) -> dict[str, object]:
    """The reasons of a resumed run: the original one of each value that is now read from config.yaml.

    A value that was changed has the reason of now. So have older runs, which recorded sentences.
    """
    first = before if isinstance(before, dict) else {}

    def original(key: str, choice: dict[str, object]) -> object:
        recorded = first.get(key)
        unchanged = isinstance(recorded, dict) and recorded.get("value") == choice["value"]
        return recorded if choice["reason"] == GIVEN and unchanged else choice

    return {key: original(key, choice) for key, choice in now.items()}


def run_session(
    setup: Setup, trainer: Trainer, prepared: Prepared, run: Run, restored: Restored | None, listener: Listener
) -> TrainState:
    """Train to the end, from what was restored if there is something, and mark the run as finished."""
    cfg, is_main = trainer.cfg, trainer.dist.is_main
    announce(setup, trainer, listener)
    state = initial_state(trainer) if restored is None else restored.state
    if is_main and not is_done(state, cfg.train):
        run.reopen()
    signals = Signals(f"run {run.name}", run.handle, listener.say_at_once)
    log = open_log(cfg, prepared.manifest, run, restored, listener) if is_main else MetricLog.silent()
    with (
        memory_errors(cfg, trainer.language_model.tokenizer.vocab_size),
        signals.watched(),
        settings(trainer.compute, deterministic=cfg.run.deterministic),
        run.noting_divergence() if is_main else nullcontext(),
        log,
    ):
        if restored is None:
            state = save_initial(trainer, run, state, log, listener)
        state = train(trainer, run, state, log, listener, signals)
    if is_main:
        run.finish({"step": state.step, "best_step": state.best_step, "best_bits_per_byte": state.best_bits_per_byte})
    trainer.dist.close()
    return state


def initial_state(trainer: Trainer) -> TrainState:
    """The beginning; under max_minutes with an estimate of how long an evaluation takes."""
    if trainer.cfg.train.max_minutes is None:
        return TrainState()
    return TrainState(evaluation_updates=expected_evaluation_updates(trainer))


def announce(setup: Setup, trainer: Trainer, listener: Listener) -> None:
    """The choices, and what deserves a warning."""
    listener.say(str(setup))
    for line in warn_of_emulation(trainer.compute):
        listener.say(line)
    if trainer.cfg.train.max_minutes is not None:
        listener.say("train.max_minutes: the clock ends this run, so a resumed one does not repeat it bit for bit")
