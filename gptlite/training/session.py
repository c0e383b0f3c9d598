"""A session of a run: build what it trains with, create or restore the run, open its log, train to the end."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from gptlite.compute.device import memory_of, resident_bytes, settings
from gptlite.compute.distributed import check_same, gather
from gptlite.compute.processes import world_size
from gptlite.config.loading import dump_config
from gptlite.config.schema import RunConfig
from gptlite.config.yaml import Value
from gptlite.data.dataset.manifest import Manifest
from gptlite.data.dataset.prepared import Prepared
from gptlite.errors import ConfigError, RunError
from gptlite.formatting import Say, counted
from gptlite.loggers.metrics import Listener, MetricLog, Sink
from gptlite.loggers.tensorboard import BASELINES, BaselineSink, TensorBoardSink
from gptlite.planning.auto import Setup
from gptlite.planning.plan import plan_run
from gptlite.runs.find import find_valid
from gptlite.runs.run import Run
from gptlite.runs.summary import read_samples
from gptlite.training.checkpointing import Restored, TrainState, restore
from gptlite.training.dry_run import expected_evaluation_updates
from gptlite.training.loop import make_up_evaluation, run_updates, save_initial
from gptlite.training.reconcile import flat
from gptlite.training.run_info import run_info, run_info_resumed
from gptlite.training.signals import Signals
from gptlite.training.step import sharing_gradients
from gptlite.training.throughput import is_emulated
from gptlite.training.timing import Measured, Replay
from gptlite.training.trainer import Trainer, begin, build, memory_errors, resolve_here

MAX_NAME = 60  # characters of a text's name


@dataclass(frozen=True, repr=False)
class Outcome:
    """A run, the text it was trained on, and the state it reached."""

    run: Run
    prepared: Prepared
    state: TrainState

    @property
    def path(self) -> Path:
        """The folder of the run."""
        return self.run.path

    @property
    def score(self) -> float | None:
        """The best bits per byte of the validation text."""
        return self.state.best_bits_per_byte

    @property
    def samples(self) -> list[tuple[int, str]]:
        """What the model wrote at each evaluation, by step."""
        return read_samples(self.run)

    def __repr__(self) -> str:
        score = "no score" if self.score is None else f"{self.score:.4f} bits per byte at step {self.state.best_step}"
        return f"<run {self.run.name}: {score}, {counted(self.state.step, 'update')}, in {self.path}>"


@dataclass(frozen=True)
class Session:
    """Everything that training needs. restored: from the newest checkpoint; None where nothing was trained yet."""

    setup: Setup
    trainer: Trainer
    prepared: Prepared
    run: Run
    restored: Restored | None
    listener: Listener
    replay: Replay | None = None  # what the clock decided in the run that this one repeats

    def train(self) -> Outcome:
        """Train to the end, from what was restored if there is something, and mark the run as finished."""
        trainer, run, listener = self.trainer, self.run, self.listener
        cfg, is_main = trainer.cfg, trainer.dist.is_main
        listener.detail(str(self.setup))
        if is_emulated(trainer.compute):
            listener.say(
                f"warning: run.precision is {cfg.run.precision}, which this {cfg.run.device} only emulates. Use "
                "run.precision=fp32 in a new run, which is faster."
            )
        if cfg.run.parallel == "fsdp" and trainer.dist.world_size == 1:
            listener.say("warning: run.parallel is fsdp, but one process divides nothing. Start several with --nproc.")
        state = TrainState() if self.restored is None else self.restored.state
        timing = self.replay or Measured(trainer, state)
        if self.restored is None and cfg.train.max_minutes is not None:
            state = replace(state, evaluation_updates=expected_evaluation_updates(trainer))
        if self.restored is not None and timing.is_done(state) and not state.evaluation_due:
            finished = f"{run.name} is finished after {state.step} updates."
            advice = "To train on, --set a larger train.max_steps, train.epochs or train.max_minutes."
            listener.say(finished if self.replay is not None else f"{finished} {advice}")
        if is_main and not timing.is_done(state):
            run.reopen()
        signals = Signals(f"run {run.name}", run.handle, listener.say_at_once)
        manifest = self.prepared.manifest
        if is_main:
            unit, done, total = timing.progress(state)
            extras = listener.begin(total, done, in_seconds=unit == "seconds")
            log = open_log(cfg, manifest, run, self.restored, extras, listener.say)
        else:
            log = MetricLog({})
        with (
            memory_errors(cfg),
            signals.watched(),
            settings(trainer.compute, deterministic=cfg.run.deterministic),
            run.noting_divergence() if is_main else nullcontext(),
            log,
        ):
            if self.restored is None:
                state = save_initial(trainer, run, state, log, listener, signals)
            elif state.evaluation_due:
                state = make_up_evaluation(trainer, run, state, log, listener, signals)
            with sharing_gradients(trainer, state.step) as trainer:
                state = run_updates(trainer, run, state, log, listener, signals, timing)
        if is_main:
            best = {"best_step": state.best_step, "best_bits_per_byte": state.best_bits_per_byte}
            # The line of these updates is missing where patience ended the run, after an evaluation.
            clock = {"fractions": state.fractions, "patience": cfg.train.patience} if state.fractions else {}
            run.finish({"step": state.step, **best, "best_blocks": state.best_blocks, **clock})
        return Outcome(run, self.prepared, state)


@contextmanager
def open_new(
    cfg: RunConfig,
    prepared: Prepared,
    create: Callable[[], Run],
    facts: Mapping[str, Any],
    listener: Listener,
    clock: Run | None = None,
) -> Iterator[Session]:
    """Open the first session of a run, locked. Its folder is created once nothing can be refused any more.

    facts: more for run.json. clock: the run whose clock is repeated.
    """
    replay = None if clock is None else Replay.of(clock)
    libraries = resident_bytes()
    setup = resolve_here(cfg, prepared)
    trainer = build(setup.cfg, prepared)
    trainer = begin(trainer, listener.say)
    is_main = trainer.dist.is_main
    run = Run(Path(gather(str(create().path) if is_main else "")[0]))
    with run.lock() if is_main else nullcontext():
        if is_main:
            if run.started:
                raise RunError("another process has just started this run. Give the command again.", f"run {run.name}")
            if replay is not None:
                replay.save(run)
            run.write_setup({**run_info(setup, trainer, prepared), **facts}, dump_config(setup.cfg))
            available = memory_of(trainer.compute.device)
            estimate, warnings = plan_run(setup.cfg, prepared, available_memory=available, libraries=libraries)
            for line in (f"plan: {estimate}", *warnings):
                listener.say(line)
        yield Session(setup, trainer, prepared, run, None, listener, replay)


def open_restored(cfg: RunConfig, prepared: Prepared, run: Run, listener: Listener) -> Session:
    """Open the next session of a locked run: from its newest valid checkpoint, or from the beginning where it has none.

    RunError where they are gone or none can be used, ConfigError where the processes found different ones. On another
    number of processes, micro-batches and threads are chosen again; the batches stay the same.
    """
    if run.info["world_size"] != world_size():
        cfg = cfg.with_values({"train.micro_batch_size": "auto", "run.threads": "auto"})
    setup = resolve_here(cfg, prepared)
    trainer = build(setup.cfg, prepared)
    model, optimizers, scaler = trainer.model, trainer.optimizers, trainer.scaler
    use = partial(restore, model=model, optimizers=optimizers, scaler=scaler, deciding=trainer.deciding)
    newest = find_valid(run.checkpoints, "latest", listener.say, use)
    if newest is None and run.has_trained:
        gone = "the checkpoints of this run are gone, although it was trained."
        raise RunError(f"{gone} Put them back, or start a new run.", str(run.checkpoints))
    found = "none" if newest is None else f"step {newest.state.step} ({newest.digest[:12]})"
    check_same({"the newest checkpoint": found})
    trainer = begin(trainer, listener.say, has_weights=newest is not None)
    replay = Replay.saved_in(run)
    updates = trainer.cfg.train.updates
    if newest is not None and updates is not None and updates < newest.state.step:
        raise ConfigError(
            f"{counted(updates, 'update')} are asked for, but {run.name} has already made {newest.state.step}. Ask for "
            "as many or more."
        )
    # Nothing is written before this line: a resume that is refused leaves the run as it was.
    gather(None)  # every process has read before the main one removes leftovers
    if trainer.dist.is_main:
        run.remove_leftovers()
        info = run_info_resumed(run.info, run_info(setup, trainer, prepared), listener.say)
        run.write_setup(info, dump_config(setup.cfg))
    return Session(setup, trainer, prepared, run, newest, listener, replay)


def open_log(
    cfg: RunConfig, manifest: Manifest, run: Run, restored: Restored | None, extras: Sequence[Sink], say: Say
) -> MetricLog:
    """Open the log with its sinks: files, more that are given, and TensorBoard. restored: of a resumed run."""
    state = TrainState() if restored is None else restored.state
    resume_step, ends = (-1, {}) if restored is None else (state.step, restored.logs)
    extras = list(extras)
    if cfg.log.tensorboard:
        sink = TensorBoardSink(
            run.path / "tb",
            started_at=run.started_at,
            config=dump_config(cfg),
            hparams=settings_of(cfg, manifest),
            resume_step=resume_step,
            resume_seconds=state.elapsed,
            best_bits_per_byte=state.best_bits_per_byte,
        )
        folder = run.path.parent / BASELINES / name_of_text(manifest)
        extras += [sink, BaselineSink(folder, *best_baseline(manifest), run.started_at)]
    return MetricLog.open(run.path, resume_step=resume_step, ends=ends, extras=extras, say=say)


def name_of_text(manifest: Manifest) -> str:
    """Name the text, the same for all tokenizers: its sources, and a few digits of their hash and the split."""
    named = ", ".join(source.name for source in manifest.sources).replace("/", "_")[:MAX_NAME]
    content = [manifest.val.bytes, *(source.sha256 for source in manifest.sources)]
    return f"{named}-{hashlib.sha256(repr(content).encode()).hexdigest()[:6]}"


def settings_of(cfg: RunConfig, manifest: Manifest) -> dict[str, Value]:
    """Return the hyperparameters that TensorBoard compares: tokenizer, model, training, text and seed."""
    tokenizer = {"tokenizer.kind": cfg.tokenizer.kind, "vocab_size": manifest.tokenizer.vocab_size}
    settings = {key: value for key, value in flat(cfg) if key.startswith(("model.", "train."))}
    del settings["train.micro_batch_size"]  # which does not change what is learned
    sources = " ".join(Path(spec).name for spec in cfg.data.sources)
    return {**tokenizer, **settings, "data.source": sources, "run.seed": cfg.run.seed}


def best_baseline(manifest: Manifest) -> tuple[str, float]:
    """Return the name and the bits per byte of the best baseline; compressors only on texts long enough for them."""
    lines = manifest.baselines
    compressors = {"gzip": lines.gzip, "xz": lines.xz, "PPMd": lines.ppmd} if manifest.compressors_meaningful else {}
    found = {"unigram": lines.unigram, "bigram": lines.bigram, **compressors}
    return min(((name, bits) for name, bits in found.items() if bits is not None), key=lambda each: each[1])
