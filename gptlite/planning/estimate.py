"""What a run will need and do, worked out before it starts: memory, disk, epochs. Arithmetic only; nothing is timed."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gptlite.config.schema import ModelSection, RunConfig
from gptlite.data.manifest import Manifest
from gptlite.formatting import abbreviated, amount, size
from gptlite.model.sizes import (
    BF16,
    FP32,
    WORD,
    Parameters,
    count_hidden,
    count_norms,
    count_parameters,
    count_tensors,
    held_by_scoring,
    held_by_training,
)

# A process that has trained next to nothing, beyond one that has only loaded torch: more pages of its library_bytes.
FIRST_UPDATE = 27 * 2**20

# How much of the heap is gaps, measured with glibc 2.36 for 24 shapes of model: it grows to about 1.3 times what a step
# uses, since a request for aligned memory wants a little more than the gap that a block of its size has left; to more
# where the gradients of one pass lie between the activations of the next. Evaluations and checkpoints, whose blocks
# are longer than those of a step, find room in about a fifth of it.
HEAP, HEAP_ACCUMULATING, REUSED = 1.3, 1.5, 0.2

# Muon's update holds, in units of the hidden matrices: all updates (1); of the feed-forward matrices, two thirds, a
# stack, its scaled copy and the result (2); seven matrices of the iteration, each a quarter of that stack's size.
MUON = 3.5

HEADER = 100  # bytes of a safetensors header for a tensor: name, type, shape, place
JSON_FILES = 3500  # bytes of config.json, generation_config.json, state.json and MANIFEST.json


@dataclass(frozen=True)
class Memory:
    """Bytes. The peak is more than the sum where evaluations or checkpoints need more than an update, and by gaps."""

    library_bytes: int  # Python and torch, before anything is built; 0 on a GPU, which holds none of it
    weights: int
    gradients: int
    optimizer: int
    activations: int  # with the logits: the most that one pass holds
    peak: int


@dataclass(frozen=True)
class Disk:
    """Bytes, and how many checkpoints are left in the end: the newest and the best."""

    checkpoint: int
    kept: int

    @property
    def total(self) -> int:
        """All checkpoints that are kept."""
        return self.checkpoint * self.kept


@dataclass(frozen=True)
class TextUse:
    """How often the training text is read. None where the clock ends the run and nothing was timed."""

    tokens: int  # of the training text
    trained: int | None

    @property
    def epochs(self) -> float | None:
        """Times that each token of the text is an input, on average."""
        return None if self.trained is None else self.trained / self.tokens


@dataclass(frozen=True)
class Estimate:
    """All of it, for a config without `auto`."""

    parameters: Parameters
    memory: Memory
    disk: Disk
    text: TextUse

    @property
    def tokens_per_parameter(self) -> float:
        """Tokens of the training text, each counted once."""
        return self.text.tokens / self.parameters.total

    def __str__(self) -> str:
        """On one line."""
        epochs = self.text.epochs
        words = [
            f"{abbreviated(self.parameters.total)} parameters",
            f"memory {size(self.memory.peak)}",
            f"{self.disk.kept} checkpoints of {size(self.disk.checkpoint)}",
            f"{abbreviated(self.text.tokens)} tokens of text ({amount(self.tokens_per_parameter)} a parameter)",
            "" if epochs is None else f"{amount(epochs)} epochs",
        ]
        return ", ".join(filter(None, words))


def estimate_run(
    cfg: RunConfig,
    manifest: Manifest,
    tokenizer_bytes: int,
    updates: int | None,
    *,
    n_processes: int,
    library_bytes: int,
) -> Estimate:
    """cfg: every `auto` decided. updates: in all, None where only the clock knows. tokenizer_bytes: of its files.
    library_bytes: bytes that the process holds with nothing built."""
    vocab_size = manifest.tokenizer.vocab_size
    trained = None if updates is None else updates * cfg.train.batch_size * cfg.model.block_size
    return Estimate(
        count_parameters(cfg.model, vocab_size),
        expected_memory(cfg, vocab_size, manifest.val.tokens, n_processes=n_processes, library_bytes=library_bytes),
        Disk(checkpoint_bytes(cfg, vocab_size) + tokenizer_bytes, kept_checkpoints(cfg, updates)),
        TextUse(manifest.train.tokens, trained),
    )


def expected_memory(
    cfg: RunConfig, vocab_size: int, val_tokens: int, *, n_processes: int, library_bytes: int
) -> Memory:
    """Of one process: resident on a CPU; on a GPU what tensors take there, without what its library_bytes reserve."""
    micro, word, on_gpu = cfg.train.micro_batch_size, WORD[cfg.run.precision], cfg.run.device != "cpu"
    assert isinstance(micro, int), "decided"
    model, attention, n_parameters = cfg.model, cfg.run.attention, count_parameters(cfg.model, vocab_size).total
    weights = gradients = n_parameters * FP32
    # Autocast keeps its bf16 copies of the matrices until the pass is over.
    copies = (count_hidden(model) + vocab_size * model.n_embd) * BF16 if word == BF16 else 0
    state = optimizer_bytes(cfg, vocab_size)
    activations = micro * model.block_size * held_by_training(model, vocab_size, attention, word) + copies
    hidden = count_hidden(model) * FP32
    # Gradients come as activations go, but they do not fit where those were.
    step = state + gradients + max(activations, int(MUON * hidden) if cfg.train.optimizer == "muon" else 0)
    scored = min(cfg.eval.batch_size * model.block_size, val_tokens)
    scoring, with_gaps = (scored * each for each in held_by_scoring(model, vocab_size, attention, word))
    if on_gpu:
        return Memory(0, weights, gradients, state, activations, weights + max(step, state + scoring))
    if micro * n_processes < cfg.train.batch_size:
        # The logits of the pass before are there until the next are: the room of both is split.
        heap = HEAP_ACCUMULATING * (step + 2 * micro * model.block_size * vocab_size * word)
    else:
        heap = HEAP * step
    # Of a checkpoint: the matrices as GPT-2 has them, and the bytes of one file twice.
    on_top = max(with_gaps, hidden + 2 * max(weights, state)) - heap * REUSED
    peak = library_bytes + FIRST_UPDATE + weights + heap + max(0, on_top)
    return Memory(library_bytes, weights, gradients, state, activations, int(peak))


def optimizer_bytes(cfg: RunConfig, vocab_size: int) -> int:
    """State of the optimizers: AdamW keeps two numbers for each it moves, and a step count a tensor; Muon one."""
    n_parameters, hidden = count_parameters(cfg.model, vocab_size).total, count_hidden(cfg.model)
    if cfg.train.optimizer == "adamw":
        return (2 * n_parameters + count_tensors(cfg.model)) * FP32
    by_adamw = n_parameters - hidden
    return (hidden + 2 * by_adamw + count_tensors(cfg.model) - 4 * cfg.model.n_layer) * FP32


def checkpoint_bytes(cfg: RunConfig, vocab_size: int) -> int:
    """All files of a checkpoint but the tokenizer's."""
    numbers, tensors = in_gpt2s_form(cfg.model, vocab_size)
    n_tensors, by_muon = count_tensors(cfg.model), 4 * cfg.model.n_layer if cfg.train.optimizer == "muon" else 0
    tensors += by_muon + 3 * (n_tensors - by_muon)  # AdamW: two means and a step count
    return numbers * FP32 + optimizer_bytes(cfg, vocab_size) + tensors * HEADER + JSON_FILES


def in_gpt2s_form(cfg: ModelSection, vocab_size: int) -> tuple[int, int]:
    """Numbers and tensors of model.safetensors: where the model has no biases or learns no positions, GPT-2 has."""
    numbers, tensors = count_parameters(cfg, vocab_size).total, count_tensors(cfg)
    if not cfg.bias:
        numbers += (9 * cfg.n_layer + count_norms(cfg)) * cfg.n_embd  # of Q, K, V 3C, then C, 4C and C; C a norm
        tensors += 4 * cfg.n_layer + count_norms(cfg)
    if cfg.position != "learned":
        numbers, tensors = numbers + cfg.block_size * cfg.n_embd, tensors + 1
    return numbers, tensors


def kept_checkpoints(cfg: RunConfig, updates: int | None) -> int:
    """The newest `save.keep` and the best, as far as there are so many."""
    kept = cfg.save.keep + 1
    return kept if updates is None else min(kept, count_saves(cfg, updates))


def count_evaluations(cfg: RunConfig, updates: int) -> int:
    """How often the validation text is looked at: regularly, and at the end."""
    return (updates - 1) // cfg.eval.every + 1


def count_saves(cfg: RunConfig, updates: int) -> int:
    """How many checkpoints are written: at the start, regularly, at the end; at each evaluation, if all are better than
    the one before."""
    within, looks, saves = updates - 1, cfg.eval.every, cfg.save.every
    return within // looks + within // saves - within // math.lcm(looks, saves) + 2
