"""The metric log of a session: its sinks, and what TensorBoard learns about the run."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from gptlite.config.loading import dump_config
from gptlite.config.schema import RunConfig
from gptlite.config.yaml import Value
from gptlite.data.dataset.manifest import Manifest
from gptlite.loggers.baselines import FOLDER, BaselineSink
from gptlite.loggers.log_files import NO_ENDS
from gptlite.loggers.metrics import MetricLog
from gptlite.loggers.tensorboard import TensorBoardSink
from gptlite.runs.run import Run
from gptlite.training.checkpointing import Restored
from gptlite.training.listener import Listener

MAX_NAME = 60  # characters of a text's name
NO_HPARAMS = ("train.micro_batch_size",)  # does not change what is learned


def open_log(cfg: RunConfig, manifest: Manifest, run: Run, restored: Restored | None, listener: Listener) -> MetricLog:
    """Open the log with its sinks: files, the listener's and TensorBoard. restored: of a resumed run."""
    state = None if restored is None else restored.state
    step, elapsed = (0, 0.0) if state is None else (state.step, state.elapsed)
    minutes = cfg.train.max_minutes
    total, start = (cfg.train.updates or 0, step) if minutes is None else (60 * minutes, elapsed)
    extras = [*listener.begin(total, start, in_seconds=minutes is not None)]
    if cfg.log.tensorboard:
        resumed: dict[str, Any] = {"best_bits_per_byte": state and state.best_bits_per_byte}
        if state is not None:
            resumed |= {"resume_step": step, "resume_tokens": state.tokens, "resume_seconds": elapsed}
        hparams = settings_of(cfg, manifest)
        baselines = run.path.parent / FOLDER / name_of_text(manifest)
        extras.append(TensorBoardSink(run.path / "tb", config=dump_config(cfg), hparams=hparams, **resumed))
        extras.append(BaselineSink(baselines, baselines_of(manifest)))
    resume_step, ends = (None, NO_ENDS) if restored is None else (restored.state.step, restored.logs)
    return MetricLog.open(run.path, resume_step=resume_step, ends=ends, extras=extras, say=listener.say)


def name_of_text(manifest: Manifest) -> str:
    """Name the text, the same for all tokenizers: its sources, and a few digits of their hash and the split."""
    named = ", ".join(source.name for source in manifest.sources).replace("/", "_")[:MAX_NAME]
    content = [manifest.val.bytes, *(source.sha256 for source in manifest.sources)]
    return f"{named}-{hashlib.sha256(repr(content).encode()).hexdigest()[:6]}"


def settings_of(cfg: RunConfig, manifest: Manifest) -> dict[str, Value]:
    """Return the hyperparameters that TensorBoard compares: tokenizer, model, training, text and seed."""
    values = cfg.model_dump()
    settings: dict[str, Value] = {"tokenizer.kind": cfg.tokenizer.kind, "vocab_size": manifest.tokenizer.vocab_size}
    for section in ("model", "train"):
        settings |= {f"{section}.{key}": value for key, value in values[section].items()}
    sources = " ".join(Path(spec).name for spec in cfg.data.sources)
    text: dict[str, Value] = {"data.source": sources, "data.order": cfg.data.order, "run.seed": cfg.run.seed}
    return {key: value for key, value in (settings | text).items() if key not in NO_HPARAMS}


def baselines_of(manifest: Manifest) -> dict[str, float]:
    """Return the bits per byte of each baseline, by name; compressors only on texts that are long enough for them."""
    lines = manifest.baselines
    compressors = {"gzip": lines.gzip, "xz": lines.xz, "PPMd": lines.ppmd} if manifest.compressors_meaningful else {}
    found = {"unigram": lines.unigram, "bigram": lines.bigram, **compressors}
    return {name: bits for name, bits in found.items() if bits is not None}
