"""The output of `gptlite train --dry-run`."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from gptlite.cli.terminal import pasteable
from gptlite.formatting import amount, counted, duration, size
from gptlite.model.sizes import Parameters
from gptlite.planning.estimate import Memory, count_evaluations, count_saves

if TYPE_CHECKING:
    from gptlite.training.dry_run import DryRun


def describe_dry_run(found: DryRun) -> list[str]:
    """The run in figures, one line each, then its warnings."""
    cfg, estimate, times = found.setup.cfg, found.plan.estimate, found.times
    disk, text = estimate.disk, estimate.text
    assert text.trained is not None, "a dry run knows the number of updates"
    evals, saves = count_evaluations(cfg, found.updates), count_saves(cfg, found.updates)
    prepared = "was already prepared" if found.was_prepared else "is now prepared"
    return [
        f"run         {found.setup}",
        f"parameters  {estimate.parameters.total:,}: {parameters_by_part(estimate.parameters)}",
        f"memory      {size(estimate.memory.peak)} measured: {memory_by_use(estimate.memory)}",
        f"disk        {size(disk.checkpoint)} per checkpoint, {disk.kept} of them kept: {size(disk.total)}",
        f"text        {counted(text.tokens, 'token')}, {amount(estimate.tokens_per_parameter)} per parameter; "
        f"trained on {text.trained:,}: {text}",
        f"time        {duration(found.seconds)}: {counted(found.updates, 'update')} of {duration(times.update)}, "
        f"{counted(evals, 'evaluation')} of {duration(times.evaluation)}, "
        f"{counted(saves, 'checkpoint')} of {duration(times.save)}",
        *map(pasteable, found.plan.warnings),
        f"No run was made. The text {prepared} in {found.prepared}.",
    ]


def parameters_by_part(parameters: Parameters) -> str:
    """The number of parameters of every part of the model that has any."""
    shown = [f"{part.replace('_', '-')} {n:,}" for part, n in dataclasses.asdict(parameters).items() if n]
    return ", ".join(shown) if parameters.head else ", ".join(shown).replace("embeddings", "embeddings and head", 1)


def memory_by_use(memory: Memory) -> str:
    """The memory of each use; they do not all peak at the same time."""
    uses = ("weights", "gradients", "optimizer", "activations")
    shown = ", ".join(f"{use} {size(getattr(memory, use))}" for use in uses)
    return f"Python and torch {size(memory.libraries)}, {shown}" if memory.libraries else shown
