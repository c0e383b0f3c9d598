"""The learning rate of each update."""

from __future__ import annotations

import math

from gptlite.config.schema import RunConfig
from gptlite.config.training import TrainSection

# By optimizer: the highest rate, and the rate times n_embd where that is less.
LR_RULES = {"muon": (0.04, 3.2), "adamw": (0.002, 0.4)}


def choose_lr(cfg: RunConfig) -> tuple[float, str]:
    """What `train.lr: auto` becomes, and why, once the optimizer is chosen: the rule of the sweep in configs/README.md.

    An update moves each weight by about lr, so what it adds to a sum over a width of n_embd grows with both (Yang et
    al. 2022, arXiv 2203.03466): lr falls as 1 / n_embd. Narrow models share one rate.

    >>> choose_lr(RunConfig().with_values({"train.optimizer": "adamw", "model.n_embd": 768}))[0]
    0.00052
    """
    if not isinstance(cfg.train.lr, str):
        return cfg.train.lr, f"lr {cfg.train.lr:.3g}: as asked"
    highest, times_width = LR_RULES[cfg.train.optimizer]
    lr = float(f"{min(highest, times_width / cfg.model.n_embd):.2g}")
    return lr, f"lr {lr:.2g}: {cfg.train.optimizer} at width {cfg.model.n_embd}"


def lr_at(step: int, cfg: TrainSection, elapsed_fraction: float | None = None) -> float:
    """Learning rate of update `step` (the first is 0): linear warm-up, then the decay to lr * min_lr_ratio.

    cosine and linear decay from the end of the warm-up on; constant holds until its last `constant_decay` of the
    updates and falls linearly there. The rate reaches the minimum where one more update would follow the last.

    time_gone: under max_minutes, the share of the time that is gone. The decay follows it instead of the updates,
    from the beginning on, since nobody knows when the warm-up will end.

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
