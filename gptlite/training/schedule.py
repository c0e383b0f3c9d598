"""The learning rate of each update."""

from __future__ import annotations

import math

from gptlite.config.training import TrainSection


def lr_at(step: int, cfg: TrainSection, elapsed_fraction: float | None = None) -> float:
    """Learning rate of update `step` (the first is 0): linear warm-up, then the decay to lr * min_lr_ratio.

    cosine and linear decay from the end of the warm-up on; constant holds until its last `constant_decay` of the
    updates and falls linearly there. The rate reaches the minimum where one more update would follow the last.

    elapsed_fraction: under max_minutes, how much of the time has passed. The decay then follows it instead of the
    updates, from the beginning, since nobody knows when the warm-up will end.

    >>> lr_at(0, TrainSection(lr=1e-3, warmup_steps=10))
    0.0001
    """
    warmup_steps = cfg.effective_warmup_steps
    at, start, end = float(step), float(warmup_steps), float(cfg.updates or 0)
    if elapsed_fraction is not None:
        at, start, end = elapsed_fraction, 0.0, 1.0
    if cfg.schedule == "constant":
        start = max(start, end - cfg.constant_decay * end)
    progress = 0.0 if at <= start else min(1.0, (at - start) / (end - start))
    shape = 0.5 * (1 + math.cos(math.pi * progress)) if cfg.schedule == "cosine" else 1 - progress
    lr = cfg.highest_lr * (cfg.min_lr_ratio + (1 - cfg.min_lr_ratio) * shape)
    return lr * (step + 1) / warmup_steps if step < warmup_steps else lr
