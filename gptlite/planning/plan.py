"""The plan of a run before it starts: parameters, memory, disk and text by arithmetic, and warnings."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace

from gptlite.compute.processes import world_size
from gptlite.config.schema import RunConfig
from gptlite.data.dataset.manifest import Manifest
from gptlite.data.dataset.prepared import TOKENIZER_FOLDER, Prepared
from gptlite.formatting import abbreviated, amount, counted, size
from gptlite.model.sizes import MAX_LOGITS, Parameters, count_hidden, count_parameters
from gptlite.planning.choose_training import EVALUATIONS, count_epochs, say_epochs
from gptlite.runs.run import runs_folder

FP32, HALF = 4, 2  # bytes

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
    total: int  # bytes of those


@dataclass(frozen=True)
class TextUse:
    """Tokens of the training text, and those trained on; None where the clock ends the run and nothing was timed."""

    tokens: int
    tokens_per_parameter: float
    trained: int | None = None
    epochs: float | None = None


@dataclass(frozen=True)
class Estimate:
    """The estimate of a run, from a config without `auto`."""

    parameters: Parameters
    memory: Memory
    disk: Disk
    text: TextUse

    def __str__(self) -> str:
        """Return one line."""
        text = self.text
        words = [
            f"{abbreviated(self.parameters.total)} parameters",
            f"about {size(self.memory.peak)} of memory",
            f"{self.disk.kept} checkpoints of {size(self.disk.checkpoint)}",
            f"{abbreviated(text.tokens)} tokens of text ({amount(text.tokens_per_parameter)} per parameter)",
        ]
        if text.trained is not None and text.epochs is not None:
            words.append(f"trained on {abbreviated(text.trained)}: {say_epochs(text.epochs)}")
        return ", ".join(words)


def estimate_run(cfg: RunConfig, prepared: Prepared, updates: int | None, *, libraries: int) -> Estimate:
    """Estimate a run from a config without `auto`.

    updates: of the whole run; None where the clock decides. libraries: bytes that the process holds before anything is
    built.
    """
    manifest = prepared.manifest
    memory = expected_memory(cfg, manifest.tokenizer.vocab_size, libraries=libraries, processes=world_size())
    tokenizer = sum(path.stat().st_size for path in (prepared.path / TOKENIZER_FOLDER).iterdir())
    parameters = count_parameters(cfg.model, manifest.tokenizer.vocab_size)
    tokens, kept = manifest.train.tokens, cfg.save.keep + 1
    text = TextUse(tokens, tokens / parameters.total)
    if updates is not None:
        kept = min(kept, count_saves(cfg, updates))
        trained = updates * cfg.train.batch_size * cfg.model.block_size
        text = replace(text, trained=trained, epochs=count_epochs(trained, tokens, cfg.model.block_size))
    checkpoint = memory.weights + memory.optimizer + tokenizer + SMALL_FILES
    return Estimate(parameters, memory, Disk(checkpoint, kept, kept * checkpoint), text)


def expected_memory(cfg: RunConfig, vocab_size: int, *, libraries: int, processes: int = 1) -> Memory:
    """Estimate the resident memory of one process on a CPU, or of its tensors on a GPU.

    parameters   4 bytes each for weights and gradients; for AdamW 8 more, for a matrix that Muon trains 4; of all of
                 these, a process of several has its part with run.parallel fsdp
    blocks       17 C numbers per token and block, as Korthikanti et al. 2022 (arXiv 2205.05198, section 4) count for
                 the backward pass; where attention weights are written, as without the fused kernel and with dropout,
                 2 nh T more, and 6 nh T while one block is computed. A number takes 4 bytes in fp32, 2 in bf16. With
                 run.checkpoint_activations that of one block, and C of each other
    logits       3 V numbers of 4 bytes per token: logits, probabilities, and what is left of the pass before; at most
                 MAX_LOGITS are computed at a time
    copies       5 of the parameters, in place of blocks and logits where they take more: Muon makes some for an update,
                 and a checkpoint is written from a copy; of divided parameters one for an evaluation, 5 of Muon's
                 matrices, and the checkpoint on a CPU

    docs/scaling.md has what was measured.
    """
    micro, model = cfg.train.micro_batch_size, cfg.model
    assert isinstance(micro, int), "resolve comes first"
    n_parameters = count_parameters(model, vocab_size).total
    writes_weights = cfg.run.attention != "fused" or model.dropouts.attention > 0.0
    kept = 1 if cfg.run.checkpoint_activations else model.n_layer  # blocks
    attended = writes_weights * (PER_WEIGHT * kept + AT_A_TIME) * model.n_head * model.block_size
    per_token = (PER_CHANNEL * kept + model.n_layer - kept) * model.n_embd + attended
    blocks = micro * per_token * (FP32 if cfg.run.precision == "fp32" else HALF)
    logits = min(MAX_LOGITS, max(micro, cfg.eval.batch_size) * model.block_size * vocab_size)
    on_cpu = cfg.run.device == "cpu"
    activations = model.block_size * blocks + logits * PER_LOGIT * FP32
    weights, by_muon = n_parameters * FP32, count_hidden(model) * FP32 if cfg.train.optimizer == "muon" else 0
    optimizer = 2 * weights - by_muon
    shares = processes if cfg.run.parallel == "fsdp" else 1
    copies = COPIES * weights
    if shares > 1:
        copies = weights + COPIES * by_muon + (weights + optimizer if on_cpu else 0)
    tensors = (2 * weights + optimizer) // shares + max(activations, copies)
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


# Muennighoff et al. 2023 (arXiv 2305.16264): four epochs are nearly as good as new text, past about 16 returns vanish.
MAX_EPOCHS = 16

# If the ids of a text follow Zipf's law, the rarest of 4,096 occurs once where the average one occurs nine times: about
# twice in a text with twenty tokens per id. Measured on tiny Shakespeare, 500 updates as in small.yaml: 2.218 bits per
# byte with 4,096 ids (68 tokens per id), 2.241 with 2,048, 2.285 with 1,024. That many ids do no harm yet.
MIN_TOKENS_PER_ID = 20

MAX_WARMUP = 1 / 4  # of all updates


def plan_run(
    cfg: RunConfig, prepared: Prepared, *, available_memory: int, libraries: int, updates: int | None = None
) -> tuple[Estimate, list[str]]:
    """Estimate a run from a config without `auto`, and list warnings, one line each.

    available_memory: bytes. libraries: that the process held before the model was built. updates: of the whole
    run; None: as many as the config says, if it does.
    """
    estimate = estimate_run(cfg, prepared, updates or cfg.train.updates, libraries=libraries)
    runs = runs_folder(cfg.run.dir).absolute()
    existing = next(path for path in (runs, *runs.parents) if path.exists())  # that holds them, or will
    warnings = (
        *warn_about_length(cfg, estimate.text.epochs),
        *warn_about_text(cfg, prepared.manifest),
        *warn_about_memory(cfg, estimate.memory.peak, available_memory),
        *warn_about_disk(cfg, estimate.disk, shutil.disk_usage(existing).free),
    )
    return estimate, [f"warning: {line}" for line in warnings]


def warn_about_length(cfg: RunConfig, epochs: float | None) -> Iterator[str]:
    """Warn about reading the text too often, unless `patience` ends training or a teacher shares the loss, and about a
    learning rate that still rises when it should fall."""
    train = cfg.train
    if epochs is not None and epochs > MAX_EPOCHS and train.patience is None and not train.ngram_teacher:
        length = f"max_steps={train.updates}" if train.max_minutes is None else f"max_minutes={train.max_minutes:g}"
        yield (
            f"train.{length} reads the text {epochs:,.0f} times. Train {100 * MAX_EPOCHS / epochs:.2g}% as long, give "
            f"more text, or set train.patience: beyond about {MAX_EPOCHS} epochs a model only memorises it."
        )
    warmup, updates = train.effective_warmup_steps, train.updates
    if updates is not None and warmup > MAX_WARMUP * updates:
        most = int(MAX_WARMUP * updates)
        yield (
            f"The warm-up takes {warmup} steps, which is {warmup / updates:.0%} of {updates} updates. Use "
            f"train.warmup_steps={most}{' or less' if most else ''}, so that most of the training uses the full "
            "learning rate."
        )


def warn_about_text(cfg: RunConfig, manifest: Manifest) -> Iterator[str]:
    """Warn about ids too rare to be learned, and about a context that mostly spans several documents.

    Not about characters, whose number nobody chooses, nor about ids that another model has learned.
    """
    tokenizer, train, block_size = manifest.tokenizer, manifest.train, cfg.model.block_size
    is_learned = tokenizer.kind != "char" and cfg.train.from_ is None
    if is_learned and train.tokens < MIN_TOKENS_PER_ID * tokenizer.vocab_size:
        fitting = 2 ** (max(1, train.tokens // MIN_TOKENS_PER_ID).bit_length() - 1)
        kind, n_ids = ("bpe", fitting) if fitting > 256 else ("char", "null")
        yield (
            f"tokenizer.vocab_size is {tokenizer.vocab_size}, and the text has "
            f"{train.tokens / tokenizer.vocab_size:.3g} tokens per id. Use tokenizer.kind={kind} and "
            f"tokenizer.vocab_size={n_ids}: below {MIN_TOKENS_PER_ID} tokens per id, the rare ids occur too seldom to "
            "be learned."
        )
    if train.documents > 1 and block_size > train.half_length:
        yield (
            f"model.block_size is {block_size}, but more than half of the text is in documents of at most "
            f"{counted(train.half_length, 'token')}. Use model.block_size={train.half_length} or less: the text of "
            "other documents does not help to predict."
        )


def advise_less_memory(cfg: RunConfig) -> str:
    """Say which values make a run need less memory, with those that are large now."""
    return (
        f"Lower train.micro_batch_size ({cfg.train.micro_batch_size}), eval.batch_size ({cfg.eval.batch_size}) or the "
        "size of the model (model.n_layer, model.n_embd, model.block_size, tokenizer.vocab_size)"
    )


def warn_about_memory(cfg: RunConfig, needed: int, available: int) -> Iterator[str]:
    """Warn about more memory than the machine, or the GPU, has."""
    if needed > available:
        yield (
            f"this run may need {size(needed)} of memory, and there are {size(available)}. {advise_less_memory(cfg)}: "
            "the system stops a process that needs more."
        )


def warn_about_disk(cfg: RunConfig, disk: Disk, available: int) -> Iterator[str]:
    """Warn about checkpoints that fill the disk. A new one is written before an old one is removed."""
    needed = disk.total + disk.checkpoint
    if needed > available:
        yield (
            f"save.keep is {cfg.save.keep}: {disk.kept} checkpoints and the one being written take "
            f"{size(needed)}, and {size(available)} are free. Lower it, or set run.dir to another disk."
        )
