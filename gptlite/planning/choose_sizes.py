"""The model and training that suit the minutes that there are: `gptlite train --minutes`.

A model and its training are chosen from a few numbers: the bytes of the text and its characters, the minutes, and the
speed of the machine. Every figure here comes from the measurements in docs/decisions.md ("Sizes from minutes").
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gptlite.config.rules import DEFAULT_VAL_FRACTION as VAL_FRACTION
from gptlite.config.rules import DEFAULT_VAL_MAX_BYTES as VAL_MAX_BYTES
from gptlite.config.schema import ModelSection
from gptlite.config.training import TrainSection
from gptlite.config.yaml import Value
from gptlite.errors import ConfigError, DataError
from gptlite.formatting import counted
from gptlite.model.sizes import default_sample_size
from gptlite.planning.choose_training import EPOCHS_PER_EVALUATION
from gptlite.planning.shapes import SHAPES, Shape

SPEED_VARIABLE = "GPTLITE_SPEED"  # the speed class, instead of a timing
CHOSEN = (
    *("data.val_max_bytes", "tokenizer.kind", "tokenizer.vocab_size"),
    *("model.n_layer", "model.n_head", "model.n_embd", "model.block_size", "model.dropout", "model.init"),
    *("train.max_minutes", "train.batch_size", "train.warmup_steps", "train.weight_decay", "train.ngram_teacher"),
    "train.temperature",
    *("eval.batch_size", "eval.every", "save.every"),
)

VOCAB_SIZES = (4096, 2048, 1024, 512)
TOKENS_PER_ID = 30  # of the training text; an id that occurs more rarely is hardly learned
# Bytes of text, and from how many operations on characters beat BPE for texts of less than that.
CHARACTERS_FROM = (100_000, 3e12), (400_000, 6e12), (3_000_000, 20e12)
SHORT_TEXT, SHORT_EPOCHS = 36_000, 12.0  # bytes for training, and how often BPE reads so many
CHARACTER_EPOCHS = 6  # of characters with a teacher, in place of one of BPE, before the text is known by heart
TEACHER_FROM = 4.0  # from how many epochs of characters on an n-gram teacher helps
# By how many characters there are for each different one: the teacher's weight, and from how many epochs on dropout is
# 0.1 in models narrower than WIDE, and in others.
TEACHERS = (10_000.0, 0.2, 45.0, 45.0), (1500.0, 0.3, 12.0, 12.0), (30.0, 0.5, 45.0, 12.0), (0.0, 0.9, 45.0, 12.0)
WIDE = 192
TEMPERATURE = 0.92  # of BPE, whose ids follow the training text, so that other text surprises the model more
MORE_DROPOUT_FROM = 60.0  # epochs of characters, from which it is 0.2
PREVIOUS_TOKEN_FROM = 500  # from this many updates on model.init: previous helps BPE; characters are better without
MORE_WEIGHT_DECAY = 0.3
MORE_WEIGHT_DECAY_FROM = 4.0  # from this many epochs on it helps BPE
DROPOUTS = (0.4, 0.2), (0.3, 0.1), (0.0, 0.0)  # of BPE, from this part of `most_epochs` on
MIN_TEXT = 1000  # bytes; less is not enough to see that anything was learned
MIN_UPDATES = 20  # in less, nothing is learned
UPDATES_SHARE = 0.9  # of the time; the rest is for evaluations and checkpoints
EVALUATION_SHARE = 0.05  # of the time, for all evaluations but the last
LAST_EVALUATION = 0.1  # of the time, at most
SCORED_PER_TRAINED = 3  # tokens that are scored in the time that one is trained on: there is no backward pass
GPU_SPEED = 8192  # GFLOP/s; only a GPU is as fast, and only with large matrices
GPU_FLOPS = 1e15  # a GPU gets at least the model for so many operations
GPU_SECONDS, CPU_SECONDS = 0.01, 0.02  # of an update: to start its kernels; for what is not a matrix product


@dataclass(frozen=True)
class Budget:
    """The text, the time and the machine that there are.

    bytes_per_character, characters: of the text, and how many different ones. speed: GFLOP/s in training.
    """

    text_bytes: int
    bytes_per_character: float
    characters: int
    minutes: float
    speed: int

    @property
    def flops(self) -> float:
        """Operations in all of the time."""
        return 60e9 * self.minutes * self.speed

    @property
    def training_bytes(self) -> float:
        """Bytes of the training text."""
        return (1 - VAL_FRACTION) * self.text_bytes

    @property
    def on_gpu(self) -> bool:
        """Whether the speed is that of a GPU."""
        return self.speed >= GPU_SPEED

    def count_updates(self, flops: float) -> float:
        """Return how many updates of so many operations the time allows."""
        seconds = flops / (1e9 * self.speed) + (GPU_SECONDS if self.on_gpu else CPU_SECONDS)
        return UPDATES_SHARE * 60 * self.minutes / seconds


def choose_sizes(
    text_bytes: int,
    minutes: float,
    speed: int,
    *,
    bytes_per_character: float = 1.0,
    characters: int = 100,
    kind: str | None = None,
    vocab_size: int | None = None,
    begins_with: ModelSection | None = None,
    max_steps: int | None = None,
    epochs: float | None = None,
) -> dict[str, Value]:
    """Choose values by "section.key" for a text, the minutes to train, and the speed class of the machine in GFLOP/s.

    The minutes among them are fewer than those that there are if the text is learned by heart before. characters: how
    many different ones the text has. kind: of tokenizer, if it is given; vocab_size: of one that exists. begins_with:
    the model that is trained on. max_steps or epochs: what ends the training instead of the clock; the model is still
    that for the minutes.
    DataError for a text that is too short for any model, ConfigError for minutes that end before anything is learned.
    """
    check_text(text_bytes)
    budget = Budget(text_bytes, bytes_per_character, characters, minutes, speed)
    shape = choose_shape(budget, begins_with)
    vocab_size = choose_vocab_size(budget, kind, vocab_size)
    per_token = bytes_per_token(vocab_size) if vocab_size else bytes_per_character
    per_update = shape.tokens * per_token  # bytes of text
    affordable = count_affordable_updates(budget, shape, vocab_size)
    most = most_epochs(budget.training_bytes, vocab_size)
    per_epoch = budget.training_bytes / per_update
    updates = min(affordable, max(MIN_UPDATES, most * per_epoch))
    val_bytes = choose_val_bytes(budget, LAST_EVALUATION * updates * SCORED_PER_TRAINED * per_update)
    if max_steps is not None or epochs is not None:
        updates = max_steps or max(1.0, (epochs or 0.0) * per_epoch)
    epochs = updates / per_epoch
    evaluation = min(val_bytes, VAL_FRACTION * text_bytes) / SCORED_PER_TRAINED / per_update  # in updates
    n_evaluations = count_evaluations(updates, as_of_short_text(epochs, budget), evaluation)
    every = max(1, int(updates / (n_evaluations + 0.5)))  # none just before the last
    return {
        "data.val_max_bytes": val_bytes,
        "tokenizer.kind": "bpe" if vocab_size else "char",
        "tokenizer.vocab_size": vocab_size or None,
        **shape.values,
        "model.init": "previous" if vocab_size and updates >= PREVIOUS_TOKEN_FROM else "zero",
        "train.max_minutes": minutes if updates == affordable else float(f"{minutes * updates / affordable:.2g}"),
        "train.warmup_steps": min(max(5, min(100, round(updates / 20))), int(updates / 4)),
        **choose_regularization(budget, shape.n_embd, vocab_size, epochs, most),
        "eval.every": every,
        "save.every": every,
    }


def choose_regularization(budget: Budget, width: int, vocab_size: int, epochs: float, most: float) -> dict[str, Value]:
    """Choose what keeps a text from being learned by heart by a model of `width`.

    most: the epochs after which it is, all the same.
    """
    if vocab_size:
        teacher, dropouts, reached = 0.0, DROPOUTS, epochs / most
        decays_more = epochs >= MORE_WEIGHT_DECAY_FROM
    else:
        per_id = budget.training_bytes / budget.bytes_per_character / budget.characters
        weight, narrow, wide = next(rest for least, *rest in TEACHERS if per_id >= least)
        teacher = weight if epochs >= TEACHER_FROM else 0.0
        dropouts = (MORE_DROPOUT_FROM, 0.2), (wide if width >= WIDE else narrow, 0.1), (0.0, 0.0)
        reached, decays_more = as_of_short_text(epochs, budget), teacher > 0.0
    return {
        "model.dropout": next(p for least, p in dropouts if reached >= least),
        "train.weight_decay": MORE_WEIGHT_DECAY if decays_more else TrainSection().weight_decay,
        "train.ngram_teacher": teacher,
        "train.temperature": TEMPERATURE if vocab_size else 1.0,
    }


def count_affordable_updates(budget: Budget, shape: Shape, vocab_size: int) -> float:
    """Count the updates that fit into the time. ConfigError for too few."""
    n_ids = vocab_size or budget.characters
    scored_ids = (None if budget.on_gpu else default_sample_size(shape.model, n_ids)) or n_ids
    affordable = budget.count_updates(shape.update_flops(scored_ids))
    if affordable < MIN_UPDATES:
        raise ConfigError(
            f"{budget.minutes:g} minutes are {affordable:.0f} updates of the smallest model on this machine, too few "
            f"to learn from. Give {budget.minutes * MIN_UPDATES / affordable:.2g} or more."
        )
    return affordable


def check_text(text_bytes: int) -> None:
    """Raise DataError for a text that is too short for any model."""
    if text_bytes < MIN_TEXT:
        raise DataError(
            f"the text has {counted(text_bytes, 'byte')}, too few to learn from. Give {MIN_TEXT:,} bytes or more; "
            "a book has a million."
        )


def choose_shape(budget: Budget, begins_with: ModelSection | None) -> Shape:
    """Choose the last of SHAPES for which there are operations and text; of a model that exists, the batch alone."""
    flops = max(budget.flops, GPU_FLOPS) if budget.on_gpu else budget.flops
    shape = [shape for least, n_bytes, shape in SHAPES if flops >= least * 1e12 and budget.text_bytes >= n_bytes][-1]
    return shape if begins_with is None else shape.with_model(begins_with)


def choose_vocab_size(budget: Budget, kind: str | None, known: int | None) -> int:
    """Choose the largest vocabulary of BPE whose ids occur often enough, unless it is known; 0 for characters.

    BPE learns faster. But it has fewer tokens, which are known by heart sooner: characters overtake it on a short text.
    """
    if kind == "char" or known is not None:
        return 0 if kind == "char" else known or 0
    has_time = any(budget.text_bytes < longest and budget.flops >= least for longest, least in CHARACTERS_FROM)
    if has_time and kind is None:
        return 0
    n_bytes = budget.training_bytes
    found = (v for v in VOCAB_SIZES if n_bytes / bytes_per_token(v) >= TOKENS_PER_ID * v)
    return next(found, VOCAB_SIZES[-1] if kind is not None else 0)


def bytes_per_token(vocab_size: int) -> float:
    """Return the bytes per token of BPE: half a byte more with each doubling."""
    return 2.04 + 0.53 * math.log2(vocab_size / 512)


def most_epochs(training_bytes: float, vocab_size: int) -> float:
    """Return how often a text can be read before a model with dropout only learns it by heart: longer texts more often,
    and characters, of which each says less, more often than BPE.

    A teacher lets characters of a shorter text be read as often as makes up SHORT_TEXT.
    """
    epochs = min(2 * SHORT_EPOCHS, SHORT_EPOCHS * math.pow(training_bytes / SHORT_TEXT, 0.2))
    return epochs if vocab_size else CHARACTER_EPOCHS * max(epochs, SHORT_EPOCHS * SHORT_TEXT / training_bytes)


def as_of_short_text(epochs: float, budget: Budget) -> float:
    """Return the epochs, for a shorter text than SHORT_TEXT those of it that read as many bytes."""
    return epochs * min(1.0, budget.training_bytes / SHORT_TEXT)


def choose_val_bytes(budget: Budget, affordable: float) -> int:
    """Choose what the schema says, unless scoring a tenth of the text once would take too long: then a power of two."""
    most = min(VAL_FRACTION * budget.text_bytes, VAL_MAX_BYTES)
    return VAL_MAX_BYTES if affordable >= most else 1 << int(math.log2(affordable))


def count_evaluations(updates: float, epochs: float, evaluation: float) -> int:
    """Count those before the last one: what fits its share of the time, 1 to 10, and one in two epochs.

    evaluation: its time in updates.
    """
    in_time = min(10, int(EVALUATION_SHARE * updates / evaluation))
    return max(1, in_time, math.ceil(epochs / EPOCHS_PER_EVALUATION - 0.5))
