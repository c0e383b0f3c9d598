"""The rules of `auto` for training: its length and evaluations, the optimizer and the learning rates; what epochs are.

One epoch is W windows of block_size tokens, as `data.dataset.sampler` has them: all that fit into the text side by
side. An order with replacement draws as many, and may draw a window twice. `planning.auto` calls the rules in order.
"""

from __future__ import annotations

import math
from fractions import Fraction

from gptlite.compute.choice import GIVEN, Choice
from gptlite.config.schema import RunConfig
from gptlite.data.dataset.sampler import windows_per_epoch
from gptlite.errors import ConfigError
from gptlite.formatting import amount, counted
from gptlite.model.sizes import muon_flops, update_flops

EVALUATIONS, EPOCHS_PER_EVALUATION = 8, 2  # of a run, at least, and between two of its evaluations, at most
# By optimizer: the highest learning rate, and the product of rate and n_embd for wide models.
LR_RULES = {"muon": (0.02, 1.6), "adamw": (0.002, 0.4)}
PREVIOUS_TOKEN_LR = 0.115  # of Muon with `init: previous`, times sqrt(n_embd)
ADAMW_LR = 0.009  # next to Muon, with at most 64 ids
CONTINUED_LR = 0.3  # of the rates, where training begins with the weights of another model, to keep what it has learned


def choose_max_steps(cfg: RunConfig, train_tokens: int) -> Choice:
    """Return the updates that train.epochs asks for, the last batch filled up; else train.max_steps as it was given.

    >>> choose_max_steps(RunConfig().with_values({"train.epochs": 0.5, "model.block_size": 10}), 1010)
    Choice(value=4, reason='0.5 epochs of 100 windows')
    """
    epochs = cfg.train.epochs
    if epochs is None:
        return Choice(cfg.train.max_steps, GIVEN)
    windows = windows_per_epoch(train_tokens, cfg.model.block_size)
    # The decimal number that was written: 1.1 epochs of 100 windows are 110, not 110.00000000000001.
    steps = math.ceil(Fraction(str(epochs)) * windows / cfg.train.batch_size)
    return Choice(steps, f"{epochs:g} {_noun(epochs)} of {counted(windows, 'window')}")


def choose_eval_every(cfg: RunConfig, train_tokens: int) -> Choice:
    """Updates between evaluations: at least eight in the run, and one in two epochs. train.max_steps comes first.

    Where the clock ends the run its updates are not known: `auto` stays, and the loop evaluates by the clock.
    """
    if cfg.eval.every != "auto":
        return Choice(cfg.eval.every, GIVEN)
    if cfg.train.updates is None:
        return Choice("auto", f"{EVALUATIONS} times by the clock, and once in {EPOCHS_PER_EVALUATION} epochs")
    updates = cfg.train.updates
    every = math.ceil(updates / EVALUATIONS)  # so that none comes just before the last, which is at the end
    if math.ceil(updates / every) < EVALUATIONS:
        every = max(1, updates // EVALUATIONS)
    every = min(every, updates_per_evaluation(cfg, train_tokens))
    return Choice(every, f"{EVALUATIONS} times or more, and once in {EPOCHS_PER_EVALUATION} epochs")


def updates_per_evaluation(cfg: RunConfig, train_tokens: int) -> int:
    """Updates that read the text as often as it may be read between two evaluations."""
    windows = windows_per_epoch(train_tokens, cfg.model.block_size)
    return max(1, EPOCHS_PER_EVALUATION * windows // cfg.train.batch_size)


def with_max_steps(cfg: RunConfig, train_tokens: int) -> RunConfig:
    """Return the config with train.epochs replaced by train.max_steps."""
    return cfg.with_values({"train.max_steps": choose_max_steps(cfg, train_tokens).value, "train.epochs": None})


def count_epochs(trained: int, train_tokens: int, block_size: int) -> float:
    """Return how often training on so many tokens reads each window; with replacement, on average.

    >>> count_epochs(3200, 1010, block_size=10)
    3.2
    """
    return trained / (windows_per_epoch(train_tokens, block_size) * block_size)


def say_epochs(epochs: float) -> str:
    """Return the epochs in two digits with their noun."""
    return f"{amount(epochs)} {_noun(epochs)}"


def _noun(epochs: float) -> str:
    return "epoch" if amount(epochs) == "1" else "epochs"


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
