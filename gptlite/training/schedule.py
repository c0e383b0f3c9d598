"""The learning rate of each update."""

from __future__ import annotations

import math

from gptlite.compute.choice import GIVEN, Choice
from gptlite.config.schema import RunConfig
from gptlite.config.training import TrainSection

# By optimizer: the highest rate, and the product of rate and n_embd for wide models.
LR_RULES = {"muon": (0.02, 1.6), "adamw": (0.002, 0.4)}
LOOKING_BACK_LR = 0.115  # of Muon with `init: previous`, times sqrt(n_embd)
ADAMW_LR = 0.009  # next to Muon, with at most 64 ids


def choose_lr(cfg: RunConfig) -> Choice:
    """The learning rate that suits optimizer and width: the rule found by the sweep in docs/decisions.md.

    An update moves each weight by about lr, so its effect on a sum over n_embd terms grows with both (Yang et al. 2022,
    arXiv 2203.03466): lr falls as 1 / n_embd. Narrow models share one rate. Where heads begin by looking back,
    Muon's lr falls only as 1 / sqrt(n_embd), as was measured. The optimizer is chosen before.

    >>> choose_lr(RunConfig().with_values({"train.optimizer": "adamw", "model.n_embd": 768})).value
    0.00052
    """
    if not isinstance(cfg.train.lr, str):
        return Choice(cfg.train.lr, GIVEN)
    highest, times_width = LR_RULES[cfg.train.optimizer]
    width = cfg.model.n_embd
    if cfg.train.optimizer == "muon" and cfg.model.has_previous_token_heads:
        lr, reason = LOOKING_BACK_LR / math.sqrt(width), f"muon at width {width} with init {cfg.model.init}"
    else:
        lr, reason = times_width / width, f"{cfg.train.optimizer} at width {width}"
    return Choice(float(f"{min(highest, lr):.2g}"), reason)


def choose_adamw_lr(cfg: RunConfig, vocab_size: int) -> Choice:
    """The learning rate of AdamW next to Muon: larger for a larger vocabulary, each id of which occurs more rarely.

    None without Muon. The optimizer is chosen before.
    """
    if cfg.train.adamw_lr != "auto":
        return Choice(cfg.train.adamw_lr, GIVEN)
    if cfg.train.optimizer != "muon":
        return Choice(None, "all parameters take train.lr")
    lr = float(f"{ADAMW_LR * max(1.0, vocab_size / 64) ** (1 / 3):.2g}")
    return Choice(lr, f"{vocab_size:,} ids")


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
