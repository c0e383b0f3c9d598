"""The `train`, `eval`, `save`, `log` and `sample` sections of the config."""

from __future__ import annotations

from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import Field

from gptlite.config.rules import SHAPE_KEYS, Section, sample_rules, train_rules
from gptlite.config.values import (
    Auto,
    BelowOne,
    Count,
    Epochs,
    Fraction,
    Frozen,
    Natural,
    NonNegative,
    Positive,
    StopTexts,
    StopTokens,
    Text,
    WeightsSource,
    key,
)
from gptlite.config.yaml import DEFAULT_MAX_STEPS

DEFAULT_DECAY_FRACTION = 0.2
DEFAULT_MOMENTUM = 0.9
DEFAULT_LENGTH_PENALTY = 1.0
LENGTHS = frozenset({"max_steps", "epochs", "max_minutes"})


class TrainSection(Section):
    """The optimization: how long, with which batches, optimizer and learning rate."""

    replaces = MappingProxyType(
        {length: LENGTHS - {length} for length in LENGTHS}
        | {"from": {f"model.{key}" for key in (*SHAPE_KEYS, "block_size", "init")}}
    )
    rules = staticmethod(train_rules)

    from_: WeightsSource = key(
        None,
        "a run, a checkpoint, a folder of a GPT-2 in Hugging Face's format, or gpt2: training begins with its weights, "
        "and the shape of the model follows from it",
        "from",
    )
    freeze: Frozen = key(None, "what is not trained, such as [embeddings, blocks 0-5]; null means that everything is")
    max_steps: Count | None = key(
        None, f"number of optimizer updates; null means {DEFAULT_MAX_STEPS}, or what epochs or max_minutes say"
    )
    epochs: Epochs | None = key(
        None,
        "how often to train on every window of the text, instead of max_steps, such as 0.5 or 3; a run stores the "
        "max_steps that follow",
    )
    max_minutes: Positive | None = key(
        None,
        "minutes to train instead of max_steps, evaluations and checkpoints included; the learning rate "
        "then follows the clock, so a resumed run does not repeat bit for bit",
    )
    batch_size: Count = key(16, "sequences per update, over all processes")
    micro_batch_size: Auto | Count = key("auto", "sequences per forward pass of one process; must divide batch_size")
    optimizer: Literal["auto", "adamw", "muon"] = key(
        "auto",
        "muon updates the hidden matrices by Muon and the rest by AdamW; auto avoids muon where its overhead is large",
    )
    lr: Auto | Positive = key("auto", "peak learning rate; auto depends on optimizer, n_embd and init")
    adamw_lr: Auto | Positive | None = key(
        "auto",
        "peak learning rate of AdamW next to muon, for all but the hidden matrices; auto depends on the vocabulary, "
        "null means lr",
    )
    warmup_steps: Natural = key(50, "updates of linear learning rate warm-up, at most all updates")
    schedule: Literal["cosine", "linear", "constant"] = key("linear", "learning rate schedule after the warm-up")
    min_lr_ratio: Fraction = key(0.0, "final learning rate as a fraction of lr")
    decay_fraction: Fraction | None = key(
        None, f"final fraction of training in which schedule constant decays lr; null means {DEFAULT_DECAY_FRACTION}"
    )
    weight_decay: NonNegative = key(
        0.1, "decoupled weight decay of the hidden matrices, and of a head that is not tied"
    )
    beta1: Auto | BelowOne = key(
        "auto", "AdamW: decay rate of the gradient's running mean; auto is 0.8 next to muon, else 0.9"
    )
    beta2: Auto | BelowOne = key(
        "auto", "AdamW: decay rate of the squared gradient's running mean; auto is 0.98 next to muon, else 0.95"
    )
    momentum: BelowOne | None = key(None, f"momentum of Muon; null means {DEFAULT_MOMENTUM}")
    grad_clip: Positive | None = key(1.0, "clip the gradient to this norm; null means no clipping")
    vocab_sample: Auto | Count | None = key(
        "auto",
        "how many ids the loss of an update is estimated from, the frequent ones always; auto is three eighths of a "
        "large vocabulary on a CPU, null means all",
    )
    ngram_teacher: BelowOne = key(
        0.0,
        "weight in the loss of what an n-gram model of the training text expects at each place; the rest is for what "
        "stands there. It helps where a text is read many times, and takes about 350 bytes of memory for each token",
    )
    temperature: Positive = key(
        1.0,
        "divide the logits by this in the loss of training alone; a value below 1 makes the trained model less "
        "confident (temperature scaling: Guo et al. 2017, arXiv 1706.04599)",
    )
    scheduled_sampling: Fraction = key(
        0.0,
        "final fraction of input tokens replaced by the model's own predictions; 0 is teacher forcing, which did "
        "better in the measurements of docs/decisions.md",
    )
    scheduled_sampling_decay: Literal["linear", "exponential", "inverse_sigmoid"] = key(
        "linear", "curve on which the fraction of the text's own inputs falls to 1 - scheduled_sampling"
    )
    scheduled_sampling_start: Fraction = key(
        0.0, "fraction of input tokens replaced at the first update; inverse_sigmoid needs one above 0"
    )
    scheduled_sampling_until: Annotated[float, Field(gt=0, le=1)] = key(
        1.0, "fraction of the training after which the fraction of replaced inputs stays as it is"
    )
    patience: Count | None = key(
        None, "stop after this many evaluations without a new best score; null means no early stopping"
    )

    def freezes(self, parameter: str) -> bool:
        """Return whether `freeze` names the part of a model that has a parameter, such as blocks.0.attn.qkv.weight."""
        module, number, *_ = parameter.split(".")
        if module != "blocks":
            return module.endswith("_embedding") and "embeddings" in (self.freeze or ())
        return any(int(number) in blocks for blocks in self.frozen_blocks)

    @property
    def frozen_blocks(self) -> list[range]:
        """The blocks that `freeze` names, counted from 0."""
        spans = [part.split(" ")[1].split("-") for part in self.freeze or () if part != "embeddings"]
        return [range(int(span[0]), int(span[-1]) + 1) for span in spans]

    @property
    def updates(self) -> int | None:
        """Number of updates; None where max_minutes decides, or epochs of a text that is not known yet."""
        default = DEFAULT_MAX_STEPS if self.max_minutes is None and self.epochs is None else None
        return default if self.max_steps is None else self.max_steps

    @property
    def effective_warmup_steps(self) -> int:
        """Updates of warm-up: `warmup_steps`, but no more than there are updates."""
        return self.warmup_steps if self.updates is None else min(self.warmup_steps, self.updates)

    @property
    def highest_lr(self) -> float:
        """`lr` after `auto` has been replaced."""
        assert not isinstance(self.lr, str), "choose_lr comes first"
        return self.lr

    @property
    def adamw_fraction(self) -> float:
        """The learning rate of AdamW next to Muon, as a fraction of `lr`, after `auto` has been replaced."""
        assert not isinstance(self.adamw_lr, str), "choose_adamw_lr comes first"
        return 1.0 if self.adamw_lr is None else self.adamw_lr / self.highest_lr

    @property
    def betas(self) -> tuple[float, float]:
        """beta1 and beta2, `auto` replaced. Next to Muon, AdamW updates little but embeddings: docs/decisions.md."""
        default = (0.8, 0.98) if self.optimizer == "muon" else (0.9, 0.95)
        return (
            default[0] if isinstance(self.beta1, str) else self.beta1,
            default[1] if isinstance(self.beta2, str) else self.beta2,
        )

    @property
    def muon_momentum(self) -> float:
        """Momentum of Muon."""
        return DEFAULT_MOMENTUM if self.momentum is None else self.momentum

    @property
    def constant_decay(self) -> float:
        """Final fraction of training in which schedule constant decays the learning rate."""
        return DEFAULT_DECAY_FRACTION if self.decay_fraction is None else self.decay_fraction


class EvalSection(Section):
    """Evaluation on the validation text."""

    every: Auto | Count = key(
        "auto", "updates between evaluations; auto evaluates at least eight times, and at least once in two epochs"
    )
    batch_size: Count = key(32, "sequences per forward pass")
    prompt: Text = key("", "prompt of the sample shown at each evaluation")


class SaveSection(Section):
    """Checkpoints."""

    every: Count = key(250, "updates between checkpoints")
    keep: Count = key(2, "number of newest checkpoints to keep, in addition to the best")


class LogSection(Section):
    """Metrics."""

    every: Count = key(10, "updates between log lines")
    tensorboard: bool = key(True, "also write TensorBoard files")
    attention: bool = key(
        False,
        "log the mean entropy of the attention weights of each block, in nats, before the first update and at each "
        "evaluation, for TensorBoard with images of the weights: on eval.prompt, or if it has fewer than two tokens, "
        "on the first 32 tokens of the validation text",
    )
    grad_norms: bool = key(False, "log the gradient norm of each layer before clipping")


class SampleSection(Section):
    """Defaults of gptlite sample."""

    rules = staticmethod(sample_rules)

    max_new_tokens: Count = key(200, "maximum number of tokens to generate")
    temperature: NonNegative = key(0.8, "sampling temperature; 0 is greedy, ignored by beam search")
    top_k: Count | None = key(None, "sample from this many most probable tokens; null means all")
    top_p: Annotated[float, Field(gt=0, le=1)] | None = key(
        None,
        "nucleus sampling: sample from the most probable tokens that together reach this probability; null means all",
    )
    min_p: Annotated[float, Field(gt=0, le=1)] | None = key(
        None, "drop tokens less probable than this fraction of the most probable one; null means none"
    )
    repetition_penalty: Positive | None = key(
        None, "above 1, tokens that already occur in the text become less probable; null means no penalty"
    )
    n: Count = key(1, "number of samples; with beam search the n best texts, at most beams")
    seed: Natural = key(0, "random seed of sampling")
    stop: StopTexts = key([], "texts that end a sample")
    stop_tokens: StopTokens = key([], "token ids that end a sample")
    beams: Annotated[int, Field(ge=1, le=64)] | None = key(
        None, "beam width of beam search; null samples token by token"
    )
    length_penalty: Annotated[float, Field(ge=-10, le=10)] | None = key(
        None,
        "exponent for beam search, which ranks texts by log p / length ** length_penalty; null means "
        f"{DEFAULT_LENGTH_PENALTY:g}, the mean per token",
    )

    @property
    def beam_length_penalty(self) -> float:
        """Exponent of the length by which beam search divides log p."""
        return DEFAULT_LENGTH_PENALTY if self.length_penalty is None else self.length_penalty
