"""Epochs: how often training visits every window of the text, from updates and to updates.

One epoch is W windows of block_size tokens, as `data.dataset.sampler` has them: all that fit into the text side by
side. An order with replacement draws as many, and may draw a window twice.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
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


@dataclass(frozen=True)
class TextUse:
    """Tokens of the training text, and tokens trained on (None where the clock ends the run and nothing was timed).

    epoch_tokens: of all windows of one epoch. with_replacement: whether the order may draw one twice in it.
    """

    tokens: int
    trained: int | None
    epoch_tokens: int
    with_replacement: bool = False

    @classmethod
    def of(cls, tokens: int, trained: int | None, *, block_size: int, order: str) -> TextUse:
        """order: data.order."""
        return cls(tokens, trained, windows_per_epoch(tokens, block_size) * block_size, order == "random")

    @property
    def epochs(self) -> float | None:
        """The number of times that each window is trained on, with replacement on average."""
        return None if self.trained is None else self.trained / self.epoch_tokens

    @property
    def repeated(self) -> float | None:
        """The epochs that are not the first; None with replacement, where chance decides what is repeated."""
        return None if self.epochs is None or self.with_replacement else max(0.0, self.epochs - 1)

    def __str__(self) -> str:
        """Say the epochs, and how many of them repeat the text; nothing where they are not known.

        >>> str(TextUse(1010, 3200, 1000)), str(TextUse(1010, 970, 1000)), str(TextUse(1010, 970, 1000, True))
        ('3.2 epochs (2.2 of repeated text)', '0.97 epochs (no repeated text)', '0.97 epochs (drawn with replacement)')
        """
        if self.epochs is None:
            return ""
        if self.with_replacement:
            repeated = "drawn with replacement"
        else:
            repeated = f"{amount(self.repeated)} of repeated text" if self.repeated else "no repeated text"
        return f"{amount(self.epochs)} {_noun(self.epochs)} ({repeated})"


def _noun(epochs: float) -> str:
    return "epoch" if amount(epochs) == "1" else "epochs"
