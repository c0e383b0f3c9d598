"""The rules of `auto` for the optimizer and its learning rates; `planning.auto` calls them in order."""

from __future__ import annotations

import math

from gptlite.compute.choice import GIVEN, Choice
from gptlite.config.schema import RunConfig
from gptlite.errors import ConfigError
from gptlite.model.sizes import muon_flops, update_flops

# By optimizer: the highest learning rate, and the product of rate and n_embd for wide models.
LR_RULES = {"muon": (0.02, 1.6), "adamw": (0.002, 0.4)}
PREVIOUS_TOKEN_LR = 0.115  # of Muon with `init: previous`, times sqrt(n_embd)
ADAMW_LR = 0.009  # next to Muon, with at most 64 ids
CONTINUED_LR = 0.3  # of the rates, where training begins with the weights of another model, to keep what it has learned


def choose_optimizer(cfg: RunConfig, vocab_size: int) -> Choice:
    """Choose Muon, unless its own arithmetic would exceed that of the model."""
    if cfg.train.optimizer != "auto":
        return Choice(cfg.train.optimizer, GIVEN)
    muon = muon_flops(cfg.model)
    model = update_flops(cfg.model, vocab_size, cfg.train.batch_size * cfg.model.block_size)
    cost = f"{muon / 1e9:.3g} GFLOP per update on top of the model's {model / 1e9:.3g}"
    if muon <= model:
        return Choice("muon", f"it costs only {cost}")
    for _, sentence in cfg.train.rules({**dict(cfg.train), "optimizer": "adamw"}):
        raise ConfigError(f"{sentence} (`auto` takes adamw here, because Muon would cost {cost}.)")
    return Choice("adamw", f"Muon would cost {cost}")


def choose_lr(cfg: RunConfig) -> Choice:
    """Choose the learning rate for optimizer and width: the rule found by the sweep in docs/decisions.md.

    An update moves each weight by about lr, so its effect on a sum over n_embd terms grows with both (Yang et al. 2022,
    arXiv 2203.03466): lr falls as 1 / n_embd. Narrow models share one rate. Where heads begin with the previous token,
    Muon's lr falls only as 1 / sqrt(n_embd), as was measured. The optimizer is chosen before.

    >>> choose_lr(RunConfig().with_values({"train.optimizer": "adamw", "model.n_embd": 768})).value
    0.00052
    """
    if not isinstance(cfg.train.lr, str):
        return Choice(cfg.train.lr, GIVEN)
    highest, times_width = LR_RULES[cfg.train.optimizer]
    width = cfg.model.n_embd
    if cfg.train.optimizer == "muon" and cfg.model.has_previous_token_heads:
        lr, reason = PREVIOUS_TOKEN_LR / math.sqrt(width), f"muon at width {width} with init {cfg.model.init}"
    else:
        lr, reason = times_width / width, f"{cfg.train.optimizer} at width {width}"
    lr = min(highest, lr)
    if cfg.train.from_ is not None:
        lr, reason = CONTINUED_LR * lr, f"{reason}, less for weights that are trained already"
    return Choice(float(f"{lr:.2g}"), reason)


def choose_adamw_lr(cfg: RunConfig, vocab_size: int) -> Choice:
    """Choose the learning rate of AdamW next to Muon: larger for more ids, each of which occurs more rarely.

    None without Muon. The optimizer is chosen before.
    """
    if cfg.train.adamw_lr != "auto":
        return Choice(cfg.train.adamw_lr, GIVEN)
    if cfg.train.optimizer != "muon":
        return Choice(None, "all parameters take train.lr")
    lr = ADAMW_LR * max(1.0, vocab_size / 64) ** (1 / 3) * (1.0 if cfg.train.from_ is None else CONTINUED_LR)
    return Choice(float(f"{lr:.2g}"), f"{vocab_size:,} ids")
