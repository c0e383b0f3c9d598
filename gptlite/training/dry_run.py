"""`gptlite train --dry-run`: build a run, time a few updates, an evaluation and a checkpoint, and keep nothing."""

from __future__ import annotations

import bisect
import dataclasses
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from gptlite.compute.device import memory_of, peak_bytes, resident_bytes, settings, torch_device
from gptlite.config.schema import RunConfig
from gptlite.data.dataset.prepared import Prepared
from gptlite.errors import ConfigError
from gptlite.formatting import amount, counted, duration, say_nothing, size
from gptlite.model.sizes import Parameters, muon_flops, update_flops
from gptlite.planning.auto import Setup
from gptlite.planning.choose_training import say_epochs
from gptlite.planning.plan import (
    Estimate,
    Memory,
    count_evaluations,
    count_saves,
    expected_memory,
    plan_run,
    warn_about_memory,
)
from gptlite.runs.checkpoint import save_checkpoint
from gptlite.training.checkpointing import TrainState, checkpoint_files, checkpoint_tensors
from gptlite.training.diagnostics import measure_attention
from gptlite.training.step import train_step
from gptlite.training.trainer import Trainer, begin, build, memory_errors, resolve_here

WARM_UP = 3  # updates that are not timed: the heap grows, kernels are chosen
EVAL_BATCHES = 6  # of the validation text
MIN_UPDATES, MAX_UPDATES, SECONDS = 5, 50, 3.0  # as many as fit these seconds


@dataclass(frozen=True)
class Times:
    """Seconds of one update, of one evaluation with its sample, and of one checkpoint."""

    update: float
    evaluation: float
    save: float


@dataclass(frozen=True)
class DryRun:
    """The result of a dry run. seconds: from its first update to its last checkpoint."""

    setup: Setup
    estimate: Estimate
    warnings: list[str]
    times: Times
    updates: int
    seconds: float
    prepared: Path

    def to_json(self) -> dict[str, Any]:
        """Return all numbers: bytes, seconds, counts."""
        figures = dataclasses.asdict(self.estimate)
        figures["parameters"]["total"] = self.estimate.parameters.total
        figures["text"]["prepared"] = str(self.prepared)
        return {
            "device": self.setup.cfg.run.device,
            "reasons": {key: dataclasses.asdict(choice) for key, choice in self.setup.reasons.items()},
            **figures,
            "seconds": {**dataclasses.asdict(self.times), "total": self.seconds},
            "updates": self.updates,
            "warnings": self.warnings,
        }

    def lines(self) -> list[str]:
        """Return the figures that a person reads, one line each, then the warnings."""
        cfg, estimate, times = self.setup.cfg, self.estimate, self.times
        disk, text = estimate.disk, estimate.text
        assert text.trained is not None, "a dry run knows the number of updates"
        assert text.epochs is not None
        evals, saves = count_evaluations(cfg, self.updates), count_saves(cfg, self.updates)
        return [
            f"run         {self.setup}",
            f"parameters  {estimate.parameters.total:,}: {_parts(estimate.parameters, '{:,}'.format)}",
            f"memory      {size(estimate.memory.peak)} measured: {_parts(estimate.memory, size)}",
            f"disk        {size(disk.checkpoint)} per checkpoint, {disk.kept} of them kept: {size(disk.total)}",
            f"text        {counted(text.tokens, 'token')}, {amount(text.tokens_per_parameter)} per parameter; "
            f"trained on {text.trained:,}: {say_epochs(text.epochs)}",
            f"time        {duration(self.seconds)}: {counted(self.updates, 'update')} of {duration(times.update)}, "
            f"{counted(evals, 'evaluation')} of {duration(times.evaluation)}, "
            f"{counted(saves, 'checkpoint')} of {duration(times.save)}",
            *self.warnings,
            f"No run was made. The text is prepared in {self.prepared}.",
        ]


def _parts(parts: Parameters | Memory, write: Callable[[int], str]) -> str:
    """Return each part that there is with its size, the peak of memory aside: the parts do not all peak together."""
    values = {part.replace("_", "-"): n for part, n in dataclasses.asdict(parts).items() if n and part != "peak"}
    return ", ".join(f"{part} {write(n)}" for part, n in values.items())


def time_run(cfg: RunConfig, prepared: Prepared) -> DryRun:
    """Resolve, build, time. ConfigError where the estimated memory exceeds what there is."""
    libraries = resident_bytes()
    setup = resolve_here(cfg, prepared)
    cfg, manifest = setup.cfg, prepared.manifest
    device = torch_device(cfg.run.device)
    memory = expected_memory(cfg, manifest.tokenizer.vocab_size, libraries=libraries)
    available = memory_of(device)
    for too_large in warn_about_memory(cfg, memory.peak, available):
        raise ConfigError(too_large)  # the system would kill this process
    trainer = begin(build(cfg, prepared), say_nothing)
    with memory_errors(cfg):
        times = time_parts(trainer, prepared.path.parent)
    updates, seconds = run_length(cfg, times)
    estimate, warnings = plan_run(cfg, prepared, available_memory=available, libraries=libraries, updates=updates)
    estimate = dataclasses.replace(estimate, memory=dataclasses.replace(memory, peak=peak_bytes(device)))
    return DryRun(setup, estimate, warnings, times, updates, seconds, prepared.path)


def time_parts(trainer: Trainer, scratch_parent: Path) -> Times:
    """Time the parts of training. The checkpoint goes to `scratch_parent`, since $TMPDIR may be small."""
    cfg = trainer.cfg
    # Under max_minutes: the middle of the run, when scheduled sampling is neither off nor at its maximum.
    elapsed_fraction = None if cfg.train.max_minutes is None else 0.5

    def update(step: int) -> None:
        stats = train_step(trainer, step % (cfg.train.updates or MAX_UPDATES), elapsed_fraction)
        stats.check_finite(cfg)  # which waits for its backward pass

    def save(folder: Path) -> None:
        files = checkpoint_files(trainer.language_model, trainer.deciding, TrainState(), {}, trainer.scaler)
        save_checkpoint(folder, 0, files, checkpoint_tensors(trainer.model, trainer.optimizers))

    with settings(trainer.compute, deterministic=cfg.run.deterministic):
        update_seconds = time_update(update)
        evaluation_seconds = time_evaluation(trainer) + time_once(trainer.sample)
        evaluation_seconds += time_once(lambda: measure_attention(trainer))
        with tempfile.TemporaryDirectory(dir=scratch_parent) as folder:
            save_seconds = time_once(lambda: save(Path(folder)))
    return Times(update_seconds, evaluation_seconds, save_seconds)


def time_once(work: Callable[[], object]) -> float:
    """Return the seconds that it takes."""
    started_at = perf_counter()
    work()
    return perf_counter() - started_at


def time_update(update: Callable[[int], object]) -> float:
    """Return the median seconds of a few updates. update: makes the one with this number."""
    times: list[float] = []
    while len(times) < WARM_UP + MIN_UPDATES or (len(times) < MAX_UPDATES and sum(times) < SECONDS):
        times.append(time_once(lambda: update(len(times))))
    return statistics.median(times[WARM_UP:])


def time_evaluation(trainer: Trainer) -> float:
    """Return the seconds to score the validation text, from a few batches spread evenly over it."""
    model, batch_size = trainer.language_model, trainer.cfg.eval.batch_size
    score = partial(model.score_tokens, trainer.validation, batch_size=batch_size)
    n_batches = sum(1 for _ in model.windows(trainer.validation).batches(batch_size))
    every = max(1, n_batches // EVAL_BATCHES)
    score(every=n_batches)  # the first batch takes longer
    return time_once(lambda: score(every=every)) * n_batches / len(range(0, n_batches, every))


def expected_evaluation_updates(trainer: Trainer) -> float:
    """Estimate the time of an evaluation in updates: a third of training on its tokens, which only go forward."""
    cfg, vocab_size = trainer.cfg, trainer.model.vocab_size
    muon = muon_flops(cfg.model) if cfg.train.optimizer == "muon" else 0
    update = update_flops(cfg.model, trainer.scored_ids, trainer.tokens_per_update) + muon
    return update_flops(cfg.model, vocab_size, trainer.validation.n_tokens) / 3 / update


def run_length(cfg: RunConfig, times: Times) -> tuple[int, float]:
    """Return the updates of the run, and the seconds from the first to the last checkpoint.

    Under max_minutes as many updates as fit with their evaluations and checkpoints.
    """

    def seconds_for(updates: int) -> float:  # without the checkpoint before the first update
        evaluations, saves = count_evaluations(cfg, updates), count_saves(cfg, updates) - 1
        return updates * times.update + evaluations * times.evaluation + saves * times.save

    if cfg.train.updates is not None:
        return cfg.train.updates, seconds_for(cfg.train.updates)
    assert cfg.train.max_minutes is not None
    seconds = 60 * cfg.train.max_minutes
    most = 1 + int(seconds / times.update)
    return max(1, bisect.bisect(range(1, most + 1), seconds, key=seconds_for)), seconds
