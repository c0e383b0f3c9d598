"""Estimates before a run starts, by arithmetic: parameters, memory, disk and text."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gptlite.config.schema import RunConfig
from gptlite.data.dataset.prepared import TOKENIZER_FOLDER, Prepared
from gptlite.formatting import abbreviated, amount, size
from gptlite.model.sizes import Parameters, count_hidden, count_parameters
from gptlite.planning.epochs import EVALUATIONS, TextUse

FP32, BF16 = 4, 2  # bytes

# Numbers in memory, see `expected_memory`: of a channel in each block; of an attention weight in each block, and while
# one is computed; of a logit; copies of a parameter.
PER_CHANNEL, PER_WEIGHT, AT_A_TIME, PER_LOGIT, COPIES = 17, 2, 6, 3, 5
FIRST_UPDATE = 40 * 2**20  # bytes of the libraries that only the first update loads, on a CPU
SMALL_FILES = 2**14  # bytes of a checkpoint's JSON files and headers


@dataclass(frozen=True)
class Memory:
    """Bytes. The peak is estimated; a dry run measures it."""

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
        """Return the bytes of all checkpoints that are kept."""
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
        """Return the tokens of the training text, each counted once, per parameter."""
        return self.text.tokens / self.parameters.total

    def __str__(self) -> str:
        """Return one line."""
        trained = self.text.trained
        words = [
            f"{abbreviated(self.parameters.total)} parameters",
            f"about {size(self.memory.peak)} of memory",
            f"{self.disk.kept} checkpoints of {size(self.disk.checkpoint)}",
            f"{abbreviated(self.text.tokens)} tokens of text ({amount(self.tokens_per_parameter)} per parameter)",
            "" if trained is None else f"trained on {abbreviated(trained)}: {self.text}",
        ]
        return ", ".join(filter(None, words))


def estimate_run(cfg: RunConfig, prepared: Prepared, updates: int | None, *, libraries: int) -> Estimate:
    """Estimate a run from a config without `auto`.

    updates: of the whole run; None where the clock decides. libraries: bytes that the process holds before anything is
    built.
    """
    manifest = prepared.manifest
    memory = expected_memory(cfg, manifest.tokenizer.vocab_size, libraries=libraries)
    tokenizer = sum(path.stat().st_size for path in (prepared.path / TOKENIZER_FOLDER).iterdir())
    trained = None if updates is None else updates * cfg.train.batch_size * cfg.model.block_size
    kept = cfg.save.keep + 1
    kept = kept if updates is None else min(kept, count_saves(cfg, updates))
    return Estimate(
        count_parameters(cfg.model, manifest.tokenizer.vocab_size),
        memory,
        Disk(memory.weights + memory.optimizer + tokenizer + SMALL_FILES, kept),
        TextUse.of(manifest.train.tokens, trained, block_size=cfg.model.block_size, order=cfg.data.order),
    )


def expected_memory(cfg: RunConfig, vocab_size: int, *, libraries: int) -> Memory:
    """Estimate the resident memory of one process on a CPU, or of its tensors on a GPU.

    parameters   4 bytes each for weights and gradients; for AdamW 8 more, for a matrix that Muon trains 4
    blocks       17 C numbers per token and block, as Korthikanti et al. 2022 (arXiv 2205.05198, section 4) count for
                 the backward pass; where attention weights are written, as without the fused kernel and with dropout,
                 2 nh T more, and 6 nh T while one block is computed. A number takes 4 bytes in fp32, 2 in bf16
    logits       3 V numbers of 4 bytes per token: logits, probabilities, and what is left of the pass before
    copies       5 of the parameters, in place of blocks and logits where they take more: Muon makes some for an update,
                 and a checkpoint is written from a copy

    docs/scaling.md has what was measured.
    """
    micro, model = cfg.train.micro_batch_size, cfg.model
    assert isinstance(micro, int), "resolve comes first"
    n_parameters = count_parameters(model, vocab_size).total
    writes_weights = cfg.run.attention != "fused" or model.dropouts.attention > 0.0
    attended = writes_weights * (PER_WEIGHT * model.n_layer + AT_A_TIME) * model.n_head * model.block_size
    per_token = PER_CHANNEL * model.n_layer * model.n_embd + attended
    blocks = micro * per_token * (BF16 if cfg.run.precision == "bf16" else FP32)
    logits = max(micro, cfg.eval.batch_size) * PER_LOGIT * vocab_size * FP32
    on_cpu = cfg.run.device == "cpu"
    activations = model.block_size * (blocks + logits)
    weights, by_muon = n_parameters * FP32, count_hidden(model) * FP32 if cfg.train.optimizer == "muon" else 0
    optimizer = 2 * weights - by_muon
    tensors = 2 * weights + optimizer + max(activations, COPIES * weights)
    first = libraries + FIRST_UPDATE if on_cpu else 0
    return Memory(libraries if on_cpu else 0, weights, weights, optimizer, activations, first + tensors)


def count_evaluations(cfg: RunConfig, updates: int) -> int:
    """Count the evaluations: every eval.every steps, and at the end."""
    return (updates - 1) // updates_between_evaluations(cfg, updates) + 1


def updates_between_evaluations(cfg: RunConfig, updates: int) -> int:
    """Return eval.every; where the clock decides, the updates of one of EVALUATIONS parts of the run."""
    return max(1, updates // EVALUATIONS) if isinstance(cfg.eval.every, str) else cfg.eval.every


def count_saves(cfg: RunConfig, updates: int) -> int:
    """Count the most checkpoints that are written: at the start, every save.every steps, at the end and at each
    evaluation, which may be the best so far."""
    before_end, evals, saves = updates - 1, updates_between_evaluations(cfg, updates), cfg.save.every
    return before_end // evals + before_end // saves - before_end // math.lcm(evals, saves) + 2
