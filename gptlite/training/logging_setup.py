"""Where a sitting writes its numbers, and what TensorBoard is told of the run."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path

from gptlite.config.loading import dump_config
from gptlite.config.schema import RunConfig
from gptlite.data.manifest import Manifest
from gptlite.loggers.baselines import FOLDER, BaselineSink
from gptlite.loggers.hparams import Setting
from gptlite.loggers.metrics import MetricLog
from gptlite.loggers.tensorboard import About, Reached, TensorBoardSink
from gptlite.runs.run import Run
from gptlite.training.listener import Listener
from gptlite.training.state import TrainState

LONGEST_NAME = 60  # characters of a text's name
WITHOUT = ("train.micro_batch_size",)  # changes nothing that is learned


def open_log(cfg: RunConfig, manifest: Manifest, run: Run, state: TrainState | None, terminal: Listener) -> MetricLog:
    """The files, the terminal and TensorBoard. state: of a run that goes on."""
    step, elapsed = (0, 0.0) if state is None else (state.step, state.elapsed)
    if cfg.train.max_minutes is None:
        extras = [*terminal.begin(cfg.train.updates or 0, step, in_seconds=False)]
    else:
        extras = [*terminal.begin(60 * cfg.train.max_minutes, elapsed, in_seconds=True)]
    if cfg.log.tensorboard:
        reached = None if state is None else reached_by(state)
        about = About(dump_config(cfg), settings_of(cfg, manifest))
        lines = run.path.parent / FOLDER / name_of_text(manifest)
        extras += [TensorBoardSink(run.path / "tb", reached, about), BaselineSink(lines, references_of(manifest))]
    resume_step = None if state is None else state.step
    return MetricLog.open(run.path, resume_step=resume_step, extras=extras, warn=terminal.say)


def reached_by(state: TrainState) -> Reached:
    """What of the curves stays when a run goes on from there."""
    best = math.inf if state.best_bits_per_byte is None else state.best_bits_per_byte
    return Reached(state.step, state.tokens, state.elapsed, best)


def name_of_text(manifest: Manifest) -> str:
    """The same for all tokenizers: what its sources are called, and a few digits of what they and the split are."""
    named = ", ".join(source.name for source in manifest.sources).replace("/", "_")[:LONGEST_NAME]
    content = [manifest.val.bytes, *(source.sha256 for source in manifest.sources)]
    return f"{named}-{hashlib.sha256(repr(content).encode()).hexdigest()[:6]}"


def settings_of(cfg: RunConfig, manifest: Manifest) -> dict[str, Setting]:
    """What decides how good a model gets: tokenizer, model, training, text and seed."""
    values = cfg.model_dump()
    settings: dict[str, Setting] = {"tokenizer.kind": cfg.tokenizer.kind, "vocab_size": manifest.tokenizer.vocab_size}
    for section in ("model", "train"):
        settings |= {f"{section}.{key}": value for key, value in values[section].items()}
    sources = " ".join(Path(spec).name for spec in cfg.data.sources)
    text: dict[str, Setting] = {"data.source": sources, "data.order": cfg.data.order, "run.seed": cfg.run.seed}
    return {key: value for key, value in (settings | text).items() if key not in WITHOUT}


def references_of(manifest: Manifest) -> dict[str, float]:
    """Bits per byte by name; of compressors only where they say something of so short a text."""
    lines = manifest.baselines
    found = {"unigram": lines.unigram} | ({} if lines.bigram is None else {"bigram": lines.bigram})
    return found | ({"gzip": lines.gzip, "xz": lines.xz} if manifest.compressors_meaningful else {})
