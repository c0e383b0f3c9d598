"""Estimates before a run starts, by arithmetic: parameters, memory, disk and text."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gptlite.config.schema import ModelSection, RunConfig
from gptlite.data.dataset.prepared import TOKENIZER_FOLDER, Prepared
from gptlite.formatting import abbreviated, amount, size
from gptlite.model.sizes import (
    BF16,
    FP32,
    WORD,
    Parameters,
    count_hidden,
    count_hidden_tensors,
    count_parameters,
    count_tensors,
    held_by_scoring,
    held_by_training,
)
from gptlite.planning.epochs import EVALUATIONS, TextUse

# Bytes that a process takes with its first update, beyond one that has only loaded torch: more pages of the libraries.
FIRST_UPDATE = 40 * 2**20

# The heap grows to more than what is in use at a time, because freed blocks rarely fit the next request. Measured with
# glibc 2.36: about 1.3 times, 1.5 times where the gradients of one pass lie between the activations of the next.
HEAP = 1.5

# Muon's update holds, in units of the hidden matrices: all updates (1); of the feed-forward matrices, two thirds, a
# stack, its scaled copy and the result (2); seven matrices of the iteration, each a quarter of that stack's size.
MUON = 3.5

HEADER = 100  # bytes of a safetensors header per tensor: name, type, shape, offsets
JSON_FILES = 3500  # bytes of config.json, generation_config.json, state.json and MANIFEST.json


@dataclass(frozen=True)
class Memory:
    """Bytes. The peak is a rough upper bound; a dry run measures it."""

    libraries: int  # Python and torch, before anything is built; 0 on a GPU
    weights: int
    gradients: int
    optimizer: int
    activations: int  # with the logits: the most during one forward and backward pass
    peak: int


@dataclass(frozen=True)
class Disk:
    """Bytes of a checkpoint, and how many are kept: the newest ones and the best."""

    checkpoint: int
    kept: int

    @property
    def total(self) -> int:
        """Bytes of all checkpoints that are kept."""
        return self.checkpoint * self.kept


@dataclass(frozen=True)
class Estimate:
    """The estimate of a run, from a config without `auto`."""

    parameters: Parameters
    memory: Memory
    disk: Disk
    text: TextUse

    @property
    def tokens_per_parameter(self) -> float:
        """Tokens of the training text, each counted once."""
        return self.text.tokens / self.parameters.total

    def __str__(self) -> str:
        """One line."""
        trained = self.text.trained
        words = [
            f"{abbreviated(self.parameters.total)} parameters",
            f"memory at most about {size(self.memory.peak)}",
            f"{self.disk.kept} checkpoints of {size(self.disk.checkpoint)}",
            f"{abbreviated(self.text.tokens)} tokens of text ({amount(self.tokens_per_parameter)} per parameter)",
            "" if trained is None else f"trained on {abbreviated(trained)}: {self.text}",
        ]
        return ", ".join(filter(None, words))


def estimate_run(
    cfg: RunConfig, prepared: Prepared, updates: int | None, *, n_processes: int, libraries: int
) -> Estimate:
    """The estimate for a config without `auto`.

    updates: of the whole run; None where the clock decides. libraries: bytes that the process holds before anything is
    built.
    """
    manifest = prepared.manifest
    vocab_size = manifest.tokenizer.vocab_size
    tokenizer_bytes = sum(path.stat().st_size for path in (prepared.path / TOKENIZER_FOLDER).iterdir())
    trained = None if updates is None else updates * cfg.train.batch_size * cfg.model.block_size
    return Estimate(
        count_parameters(cfg.model, vocab_size),
        expected_memory(cfg, vocab_size, manifest.val.tokens, n_processes=n_processes, libraries=libraries),
        Disk(checkpoint_bytes(cfg, vocab_size) + tokenizer_bytes, kept_checkpoints(cfg, updates)),
        TextUse.of(manifest.train.tokens, trained, block_size=cfg.model.block_size, order=cfg.data.order),
    )


def expected_memory(cfg: RunConfig, vocab_size: int, val_tokens: int, *, n_processes: int, libraries: int) -> Memory:
    """Of one process: a rough bound of its resident memory on a CPU, or of its tensors on a GPU."""
    micro, word = cfg.train.micro_batch_size, WORD[cfg.run.precision]
    assert isinstance(micro, int), "resolve comes first"
    model, attention, n_parameters = cfg.model, cfg.run.attention, count_parameters(cfg.model, vocab_size).total
    weights = gradients = n_parameters * FP32
    hidden = count_hidden(model) * FP32
    # Autocast keeps its bf16 copies of the matrices until the pass is over.
    copies = (count_hidden(model) + vocab_size * model.n_embd) * BF16 if word == BF16 else 0
    state = optimizer_bytes(cfg, vocab_size)
    activations = micro * model.block_size * held_by_training(model, vocab_size, attention, word) + copies
    update = state + gradients + max(activations, int(MUON * hidden) if cfg.train.optimizer == "muon" else 0)
    scored = min(cfg.eval.batch_size * model.block_size, val_tokens)
    scoring = state + scored * held_by_scoring(model, vocab_size, attention, word)
    if cfg.run.device != "cpu":
        return Memory(0, weights, gradients, state, activations, weights + max(update, scoring))
    if micro * n_processes < cfg.train.batch_size:  # the logits of a pass are freed only when those of the next exist
        update += 2 * micro * model.block_size * vocab_size * word
    saving = state + hidden + 2 * max(weights, state)  # matrices in GPT-2's layout, and the bytes of one file twice
    peak = libraries + FIRST_UPDATE + weights + int(HEAP * max(update, scoring, saving))
    return Memory(libraries, weights, gradients, state, activations, peak)


def advise_less_memory(
    cfg: RunConfig, vocab_size: int, val_tokens: int, *, available: int, n_processes: int, libraries: int
) -> str:
    """Say what to lower in a run that has filled its memory: the micro-batch to the largest size below that is expected
    to fit into `available` bytes, else the size that takes most."""

    def expect(micro: int, scored: int) -> Memory:
        lowered = cfg.with_values({"train.micro_batch_size": micro, "eval.batch_size": scored})
        return expected_memory(lowered, vocab_size, val_tokens, n_processes=n_processes, libraries=libraries)

    micro, rows = cfg.train.micro_batch_size, cfg.train.batch_size // n_processes
    assert isinstance(micro, int), "resolve comes first"
    smaller = (n for n in range(micro - 1, 0, -1) if rows % n == 0)
    fitting = next((n for n in smaller if expect(n, cfg.eval.batch_size).peak <= available), None)
    if fitting is not None:
        return f"Use train.micro_batch_size={fitting}, which is expected to fit into {size(available)}."
    least = expect(1, 1)
    if least.peak <= available:
        return "Lower eval.batch_size."
    parameters = count_parameters(cfg.model, vocab_size)
    if least.activations > least.weights + least.gradients + least.optimizer:
        largest = "model.block_size"
    elif parameters.embeddings + parameters.head > parameters.total / 2:
        largest = "tokenizer.vocab_size or model.n_embd"
    else:
        largest = "model.n_layer or model.n_embd"
    return f"Lower {largest}: not even one sequence at a time is expected to fit into {size(available)}."


def optimizer_bytes(cfg: RunConfig, vocab_size: int) -> int:
    """State of the optimizers. AdamW keeps two numbers per parameter and a step count per tensor, Muon one number."""
    n_parameters, hidden = count_parameters(cfg.model, vocab_size).total, count_hidden(cfg.model)
    if cfg.train.optimizer == "adamw":
        return (2 * n_parameters + count_tensors(cfg.model)) * FP32
    by_adamw = n_parameters - hidden
    return (hidden + 2 * by_adamw + count_tensors(cfg.model) - count_hidden_tensors(cfg.model)) * FP32


def checkpoint_bytes(cfg: RunConfig, vocab_size: int) -> int:
    """All files of a checkpoint except the tokenizer's."""
    numbers, tensors = gpt2_layout_size(cfg.model, vocab_size)
    n_tensors = count_tensors(cfg.model)
    by_muon = count_hidden_tensors(cfg.model) if cfg.train.optimizer == "muon" else 0
    tensors += by_muon + 3 * (n_tensors - by_muon)  # AdamW: two means and a step count
    return numbers * FP32 + optimizer_bytes(cfg, vocab_size) + tensors * HEADER + JSON_FILES


def gpt2_layout_size(cfg: ModelSection, vocab_size: int) -> tuple[int, int]:
    """Numbers and tensors in model.safetensors: GPT-2's layout has biases and positions even if the model has none."""
    stored = cfg.model_copy(update={"bias": True, "position": "learned"})
    return count_parameters(stored, vocab_size).total, count_tensors(stored)


def kept_checkpoints(cfg: RunConfig, updates: int | None) -> int:
    """The newest `save.keep` and the best, if the run writes that many."""
    kept = cfg.save.keep + 1
    return kept if updates is None else min(kept, count_saves(cfg, updates))


def count_evaluations(cfg: RunConfig, updates: int) -> int:
    """Count the evaluations: every eval.every steps, and at the end."""
    return (updates - 1) // updates_between_evaluations(cfg, updates) + 1


def updates_between_evaluations(cfg: RunConfig, updates: int) -> int:
    """eval.every; where the clock decides, the updates of one of EVALUATIONS parts of the run."""
    return max(1, updates // EVALUATIONS) if isinstance(cfg.eval.every, str) else cfg.eval.every


def count_saves(cfg: RunConfig, updates: int) -> int:
    """The most checkpoints that are written: at the start, every save.every steps, at the end and at each evaluation,
    which may be the best so far."""
    before_end, evals, saves = updates - 1, updates_between_evaluations(cfg, updates), cfg.save.every
    return before_end // evals + before_end // saves - before_end // math.lcm(evals, saves) + 2
