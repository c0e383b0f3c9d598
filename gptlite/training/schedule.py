"""The learning rate of each update."""

from __future__ import annotations

import math

from gptlite.config.schema import TrainSection


def lr_at(step: int, cfg: TrainSection) -> float:
    """Learning rate of update `step` (the first is 0): linear warm-up, then the decay to lr * min_lr_ratio.

    cosine and linear decay from the end of the warm-up on; constant holds until its last `constant_decay` of the
    updates and falls linearly there. The rate reaches the minimum where one more update would follow the last.

    >>> lr_at(0, TrainSection(lr=1e-3, warmup_steps=10))
    0.0001
    """
    if step < cfg.warmup_steps:
        return cfg.lr * (step + 1) / cfg.warmup_steps
    start = cfg.warmup_steps
    if cfg.schedule == "constant":
        start = max(start, cfg.max_steps - round(cfg.constant_decay * cfg.max_steps))
    progress = max(0.0, (step - start) / max(1, cfg.max_steps - start))
    shape = 0.5 * (1 + math.cos(math.pi * progress)) if cfg.schedule == "cosine" else 1 - progress
    return cfg.lr * (cfg.min_lr_ratio + (1 - cfg.min_lr_ratio) * shape)
