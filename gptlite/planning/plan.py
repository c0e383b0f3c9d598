"""The plan of a run before it starts: its estimate, and warnings about what is out of proportion."""

from __future__ import annotations

from collections.abc import Iterator

from gptlite.config.schema import RunConfig
from gptlite.data.dataset.manifest import Manifest, SplitRecord
from gptlite.data.dataset.prepared import Prepared
from gptlite.data.preparing.encode import free_bytes
from gptlite.formatting import counted, size
from gptlite.planning.estimate import Estimate, estimate_run
from gptlite.runs.run import runs_folder

# Muennighoff et al. 2023 (arXiv 2305.16264): four epochs are nearly as good as new text, past about 16 returns vanish.
MAX_EPOCHS = 16

# If the ids of a text follow Zipf's law, the rarest of 4,096 occurs once where the average one occurs nine times: about
# twice in a text with twenty tokens per id. Measured on tiny Shakespeare, 500 updates as in small.yaml: 2.218 bits per
# byte with 4,096 ids (68 tokens per id), 2.241 with 2,048, 2.285 with 1,024. That many ids do no harm yet.
MIN_TOKENS_PER_ID = 20

MAX_WARMUP = 1 / 4  # of all updates


def plan_run(
    cfg: RunConfig,
    prepared: Prepared,
    *,
    available_memory: int,
    libraries: int,
    updates: int | None = None,
) -> tuple[Estimate, list[str]]:
    """Estimate a run from a config without `auto`, and list warnings, one line each.

    available_memory: bytes. libraries: that the process held before the model was built. updates: of the whole
    run; None: as many as the config says, if it does.
    """
    estimate = estimate_run(cfg, prepared, updates or cfg.train.updates, libraries=libraries)
    warnings = (
        *warn_about_epochs(cfg, estimate),
        *warn_about_vocabulary(prepared.manifest),
        *warn_about_block_size(cfg.model.block_size, prepared.manifest.train),
        *warn_about_warmup(cfg.train.effective_warmup_steps, cfg.train.updates),
        *warn_about_memory(cfg, estimate.memory.peak, available_memory),
        *warn_about_disk(cfg, estimate, free_bytes(runs_folder(cfg.run.dir))),
    )
    return estimate, [f"warning: {line}" for line in warnings]


def warn_about_epochs(cfg: RunConfig, estimate: Estimate) -> Iterator[str]:
    """Warn about reading the text too often, unless `patience` ends training."""
    epochs = estimate.text.epochs
    if epochs is None or epochs <= MAX_EPOCHS or cfg.train.patience is not None:
        return
    clock = cfg.train.max_minutes is not None
    length = f"max_minutes={cfg.train.max_minutes:g}" if clock else f"max_steps={cfg.train.updates}"
    yield (
        f"train.{length} reads the text {epochs:,.0f} times. Train {100 * MAX_EPOCHS / epochs:.2g}% as long, give more "
        f"text, or set train.patience: beyond about {MAX_EPOCHS} epochs a model only memorises it."
    )


def warn_about_vocabulary(manifest: Manifest) -> Iterator[str]:
    """Warn about ids too rare to be learned, but not of characters, whose number nobody chooses."""
    tokenizer, tokens = manifest.tokenizer, manifest.train.tokens
    if tokenizer.kind == "char" or tokens >= MIN_TOKENS_PER_ID * tokenizer.vocab_size:
        return
    fitting = 2 ** (max(1, tokens // MIN_TOKENS_PER_ID).bit_length() - 1)
    kind, n_ids = ("bpe", fitting) if fitting > 256 else ("char", "null")
    yield (
        f"tokenizer.vocab_size is {tokenizer.vocab_size}, and the text has {tokens / tokenizer.vocab_size:.3g} tokens "
        f"per id. Use tokenizer.kind={kind} and tokenizer.vocab_size={n_ids}: below {MIN_TOKENS_PER_ID} tokens per id, "
        "the rare ids occur too seldom to be learned."
    )


def warn_about_block_size(block_size: int, train: SplitRecord) -> Iterator[str]:
    """A context that mostly spans several documents. Says nothing about a single document."""
    if train.documents > 1 and block_size > train.half_length:
        yield (
            f"model.block_size is {block_size}, but more than half of the text is in documents of at most "
            f"{counted(train.half_length, 'token')}. Use model.block_size={train.half_length} or less: the text of "
            "other documents does not help to predict."
        )


def warn_about_warmup(warmup_steps: int, updates: int | None) -> Iterator[str]:
    """Warn about a learning rate that still rises when it should fall."""
    if updates is None or warmup_steps <= MAX_WARMUP * updates:
        return
    most = int(MAX_WARMUP * updates)
    yield (
        f"The warm-up takes {warmup_steps} steps, which is {warmup_steps / updates:.0%} of {updates} updates. Use "
        f"train.warmup_steps={most}{' or less' if most else ''}, so that most of the training uses the full "
        "learning rate."
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


def warn_about_disk(cfg: RunConfig, estimate: Estimate, available: int) -> Iterator[str]:
    """Warn about checkpoints that fill the disk. A new one is written before an old one is removed."""
    needed = estimate.disk.total + estimate.disk.checkpoint
    if needed > available:
        yield (
            f"save.keep is {cfg.save.keep}: {estimate.disk.kept} checkpoints and the one being written take "
            f"{size(needed)}, and {size(available)} are free. Lower it, or set run.dir to another disk."
        )
