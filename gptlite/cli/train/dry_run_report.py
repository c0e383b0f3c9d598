"""What `gptlite train --dry-run` prints."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from gptlite.formatting import amount, counted, size
from gptlite.model.sizes import Parameters
from gptlite.planning.estimate import Memory, count_evaluations, count_saves

if TYPE_CHECKING:
    from gptlite.training.dry_run import DryRun


def card_of_plan(planned: DryRun) -> list[str]:
    """The run that a config asks for, in figures, and what is out of proportion in it."""
    cfg, foreseen, times = planned.setup.cfg, planned.plan.estimate, planned.times
    disk, reading = foreseen.disk, foreseen.text
    assert reading.trained is not None, "the updates of a plan are known"
    assert reading.epochs is not None, "the same"
    looks, saves = count_evaluations(cfg, planned.updates), count_saves(cfg, planned.updates)
    there = "was prepared already" if planned.was_prepared else "is prepared now"
    return [
        f"run         {planned.setup}",
        f"parameters  {foreseen.parameters.total:,}: {by_part(foreseen.parameters)}",
        f"memory      {size(foreseen.memory.peak)} measured: {by_use(foreseen.memory)}",
        f"disk        {size(disk.checkpoint)} a checkpoint, {disk.kept} of them kept: {size(disk.total)}",
        f"text        {reading.tokens:,} tokens, {amount(foreseen.tokens_per_parameter)} a parameter; "
        f"trained on {reading.trained:,}: {amount(reading.epochs)} epochs",
        f"time        {duration(planned.seconds)}: {counted(planned.updates, 'update')} of {duration(times.update)}, "
        f"{counted(looks, 'evaluation')} of {duration(times.evaluation)}, "
        f"{counted(saves, 'checkpoint')} of {duration(times.save)}",
        *planned.plan.warnings,
        f"no run was made; the text {there}, in {planned.prepared}",
    ]


def by_part(parameters: Parameters) -> str:
    """Every part of the model that has parameters of its own."""
    shown = [f"{part.replace('_', '-')} {n:,}" for part, n in dataclasses.asdict(parameters).items() if n]
    return ", ".join(shown) if parameters.head else ", ".join(shown).replace("embeddings", "embeddings and head", 1)


def by_use(memory: Memory) -> str:
    """What takes it; not all of it at the same time."""
    uses = ("weights", "gradients", "optimizer", "activations")
    shown = ", ".join(f"{use} {size(getattr(memory, use))}" for use in uses)
    return f"Python and torch {size(memory.library_bytes)}, {shown}" if memory.library_bytes else shown


def duration(seconds: float) -> str:
    """How long, in one or two units.

    >>> duration(0.0042), duration(2.345), duration(200), duration(7500)
    ('4.2 ms', '2.3 s', '3 min 20 s', '2 h 5 min')
    """
    if seconds < 1:
        return f"{1000 * seconds:.{1 if seconds < 0.01 else 0}f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, second = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {second} s"
    return f"{minutes // 60} h {minutes % 60} min"
