"""The keys of training: `train`, and what is evaluated, saved and logged on the way."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from gptlite.config.defaults import DEFAULT_MAX_STEPS
from gptlite.config.rules import (
    Rule,
    Section,
    decay_belongs_to_constant,
    micro_batches_fill_the_batch,
    momentum_belongs_to_muon,
    one_length,
    pictures_belong_to_tensorboard,
    warmup_ends_in_time,
)
from gptlite.config.values import Auto, BelowOne, Count, Fraction, Natural, NonNegative, Positive, Text

DEFAULT_DECAY_FRACTION = 0.2
DEFAULT_MOMENTUM = 0.9


class TrainSection(Section):
    """The updates: how many, of how much text, and by which rule."""

    alternatives = frozenset({"max_steps", "max_minutes"})
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(("micro_batch_size", "batch_size"), micro_batches_fill_the_batch),
        Rule(("max_steps", "max_minutes"), one_length),
        Rule(("warmup_steps", "max_steps", "max_minutes"), warmup_ends_in_time),
        Rule(("decay_fraction", "schedule"), decay_belongs_to_constant),
        Rule(("momentum", "optimizer"), momentum_belongs_to_muon),
    )

    max_steps: Count | None = Field(
        default=None, description=f"updates in all; null means {DEFAULT_MAX_STEPS}, or as many as max_minutes allows"
    )
    max_minutes: Positive | None = Field(
        default=None,
        description="instead of max_steps: minutes of training, evaluations and checkpoints included; the learning "
        "rate follows the clock, so a resumed run does not repeat bit for bit",
    )
    batch_size: Count = Field(default=16, description="sequences per update, over all processes")
    micro_batch_size: Auto | Count = Field(
        default="auto", description="sequences per forward pass of one process; divides batch_size"
    )
    optimizer: Literal["auto", "adamw", "muon"] = Field(
        default="auto",
        description="muon moves hidden matrices, adamw the rest; auto avoids muon where its own work is too much",
    )
    lr: Auto | Positive = Field(default="auto", description="highest learning rate; auto suits optimizer and width")
    warmup_steps: Natural = Field(default=50, description="updates in which the learning rate rises linearly")
    schedule: Literal["cosine", "linear", "constant"] = Field(
        default="linear", description="how the learning rate goes on after the warm-up"
    )
    min_lr_ratio: Fraction = Field(default=0.0, description="last learning rate as a share of lr")
    decay_fraction: Fraction | None = Field(
        default=None,
        description=f"only for constant: last share of training, where lr falls; null means {DEFAULT_DECAY_FRACTION}",
    )
    weight_decay: NonNegative = Field(default=0.1, description="decoupled decay of the hidden matrices")
    beta1: BelowOne = Field(default=0.9, description="adamw: memory of the gradient's mean")
    beta2: BelowOne = Field(default=0.95, description="adamw: memory of the gradient's square")
    momentum: BelowOne | None = Field(
        default=None, description=f"only for muon: memory of the gradient; null means {DEFAULT_MOMENTUM}"
    )
    grad_clip: Positive | None = Field(default=1.0, description="largest norm of the gradient; null does not clip")
    scheduled_sampling: Fraction = Field(
        default=0.0,
        description="at most this share of the inputs becomes what the model itself proposes, rising from 0 over the "
        "training; 0 is teacher forcing, the better one where configs/README.md measures them",
    )
    patience: Count | None = Field(
        default=None, description="stop after this many evaluations without a new best; null never stops early"
    )

    @property
    def updates(self) -> int | None:
        """Updates in all; None where max_minutes says how long."""
        default = DEFAULT_MAX_STEPS if self.max_minutes is None else None
        return default if self.max_steps is None else self.max_steps

    @property
    def highest_lr(self) -> float:
        """`lr`, once `auto` has been replaced."""
        assert not isinstance(self.lr, str), "choose_lr comes first"
        return self.lr

    @property
    def muon_momentum(self) -> float:
        """Under Muon: the memory of the gradient."""
        return DEFAULT_MOMENTUM if self.momentum is None else self.momentum

    @property
    def constant_decay(self) -> float:
        """Under schedule constant: the share of training, at its end, in which the learning rate falls."""
        return DEFAULT_DECAY_FRACTION if self.decay_fraction is None else self.decay_fraction


class EvalSection(Section):
    """The regular look at the validation text."""

    every: Count = Field(default=250, description="updates between evaluations")
    batch_size: Count = Field(default=32, description="sequences per forward pass")
    prompt: Text = Field(default="", description="start of the sample shown at each evaluation")


class SaveSection(Section):
    """Checkpoints."""

    every: Count = Field(default=250, description="updates between checkpoints")
    keep: Count = Field(default=2, description="newest checkpoints kept, besides the best")


class LogSection(Section):
    """Metrics."""

    rules: ClassVar[tuple[Rule, ...]] = (
        pictures_belong_to_tensorboard("attention"),
        pictures_belong_to_tensorboard("histograms"),
    )

    every: Count = Field(default=10, description="updates between log lines")
    tensorboard: bool = Field(default=True, description="write TensorBoard files beside metrics.jsonl")
    attention: bool = Field(
        default=False,
        description="at each evaluation, images of the attention to eval.prompt; where that has less than two tokens, "
        "to the first 32 of the validation text",
    )
    grad_norms: bool = Field(default=False, description="log the norm of the gradient of each layer, before clipping")
    histograms: bool = Field(
        default=False, description="at each evaluation, histograms of every parameter and of its newest gradient"
    )
