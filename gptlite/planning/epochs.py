"""Epochs: how often training visits every window of the text, from updates and to updates.

One epoch is W windows of block_size tokens, as `data.dataset.sampler` has them: all that fit into the text side by
side. An order with replacement draws as many, and may draw a window twice.
"""

from __future__ import annotations

import math
from fractions import Fraction

from gptlite.compute.choice import GIVEN, Choice
from gptlite.config.schema import RunConfig
from gptlite.data.dataset.sampler import windows_per_epoch
from gptlite.formatting import amount, counted

EVALUATIONS, EPOCHS_PER_EVALUATION = 8, 2  # of a run, at least, and between two of its evaluations, at most


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
