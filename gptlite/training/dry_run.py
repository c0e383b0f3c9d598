"""`gptlite train --dry-run`: a run up to its first updates, which are timed and thrown away. Nothing of it is kept."""

from __future__ import annotations

import dataclasses
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gptlite.compute.device import settings
from gptlite.compute.memory import memory_of, resident_bytes
from gptlite.config.schema import RunConfig
from gptlite.data.batches import Batches
from gptlite.data.prepared import Prepared
from gptlite.errors import ConfigError
from gptlite.planning.estimate import expected_memory
from gptlite.planning.warnings import about_memory
from gptlite.runs.checkpoint import save_checkpoint
from gptlite.training.checkpointing import Identity, files_of, tensors_of
from gptlite.training.eval_media import pictures
from gptlite.training.outlook import Outlook, look_ahead
from gptlite.training.rehearsal import (
    Times,
    elapsed_of,
    seconds_of,
    time_of_evaluation,
    time_of_update,
    updates_in,
)
from gptlite.training.state import TrainState
from gptlite.training.step import train_step
from gptlite.training.trainer import Setup, decided, memory_errors, model_of, sample


@dataclass(frozen=True)
class DryRun:
    """What a run would do and need. seconds: from its first update to its last checkpoint."""

    plan: Setup
    outlook: Outlook
    times: Times
    updates: int
    seconds: float
    prepared: Path
    was_prepared: bool  # before this command

    def to_json(self) -> dict[str, Any]:
        """All figures: bytes, seconds, counts."""
        foreseen = self.outlook.forecast
        return {
            "device": self.plan.cfg.run.device,
            "reasons": list(self.plan.reasons),
            "parameters": {**dataclasses.asdict(foreseen.parameters), "total": foreseen.parameters.total},
            "memory": dataclasses.asdict(foreseen.memory),
            "disk": {**dataclasses.asdict(foreseen.disk), "total": foreseen.disk.total},
            "text": {
                **dataclasses.asdict(foreseen.reading),
                "epochs": foreseen.reading.epochs,
                "tokens_per_parameter": foreseen.tokens_per_parameter,
                "prepared": str(self.prepared),
                "was_prepared": self.was_prepared,
            },
            "seconds": {**dataclasses.asdict(self.times), "total": self.seconds},
            "updates": self.updates,
            "warnings": list(self.outlook.warnings),
        }


def foresee(cfg: RunConfig, prepared: Prepared, *, was_prepared: bool) -> DryRun:
    """Decide, build, work out, and time what cannot be worked out."""
    libraries = resident_bytes()
    plan = decided(cfg, prepared)
    vocab_size, val_tokens = prepared.manifest.tokenizer.vocab_size, prepared.manifest.val.tokens
    memory = expected_memory(plan.cfg, vocab_size, val_tokens, world_size=1, libraries=libraries)
    for too_large in about_memory(plan.cfg, memory.peak, memory_of(plan.compute.device)):
        raise ConfigError(too_large)  # to try it would be the end of this process
    with memory_errors(cfg):
        times = rehearse(plan, prepared)
    updates = updates_in(plan.cfg, times)
    outlook = look_ahead(plan.cfg, plan.compute, plan.dist, prepared, libraries, updates)
    return DryRun(plan, outlook, times, updates, seconds_of(plan.cfg, times), prepared.path, was_prepared)


def rehearse(plan: Setup, prepared: Prepared) -> Times:
    """Time the parts of a training on a model that nobody needs afterwards."""
    cfg, model, validation = plan.cfg, model_of(plan, prepared), prepared.split("val")
    batches = Batches(prepared.split("train"), cfg.model.block_size, cfg.train.batch_size, cfg.run.seed, cfg.data.order)
    # In the middle of a run that the clock ends, nothing that changes on the way is at its least.
    gone = None if cfg.train.max_minutes is None else 0.5

    def update(step: int) -> None:
        within = step if cfg.train.updates is None else step % cfg.train.updates
        train_step(plan.model, plan.optimizers, batches, within, cfg, plan.compute, plan.dist, gone)

    def look() -> None:
        sample(model, cfg)
        pictures(model, cfg, validation, plan.dist)

    with settings(plan.compute, deterministic=cfg.run.deterministic):
        of_update = time_of_update(update)
        of_look = time_of_evaluation(model, validation, cfg.eval.batch_size) + elapsed_of(look)
        with tempfile.TemporaryDirectory(dir=prepared.path.parent) as scratch:  # $TMPDIR may be small
            of_save = elapsed_of(lambda: save(Path(scratch), plan, prepared))
    return Times(of_update, of_look, of_save)


def save(folder: Path, plan: Setup, prepared: Prepared) -> None:
    """A checkpoint as the run would write it."""
    manifest = prepared.manifest
    identity = Identity(manifest.tokenizer.fingerprint, manifest.fingerprint, plan.cfg.train.optimizer)
    files = files_of(model_of(plan, prepared), identity, TrainState())
    save_checkpoint(folder, 0, files, tensors_of(plan.model, plan.optimizers))
