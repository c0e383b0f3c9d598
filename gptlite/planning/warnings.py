"""Warnings before a run starts: what is out of proportion, with its number, why it matters, and what to change."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from gptlite.config.schema import RunConfig
from gptlite.data.manifest import Manifest
from gptlite.formatting import size
from gptlite.planning.estimate import Forecast

# Muennighoff et al. 2023 (arXiv 2305.16264): four epochs are nearly as good as new text, past about 16 returns vanish.
MOST_EPOCHS = 16

# If the ids of a text follow Zipf's law, the rarest of 4,096 comes once where the mean comes nine times: about twice
# in a text that has twenty tokens for each. Measured on tiny Shakespeare, 500 updates as in small.yaml: 2.218 bits per
# byte with 4,096 ids (68 tokens for each), 2.241 with 2,048, 2.285 with 1,024. So large a vocabulary does no harm yet.
LEAST_TOKENS_PER_ID = 20

LONGEST_WARMUP = 1 / 4  # of all updates


def advice(
    cfg: RunConfig, foreseen: Forecast, manifest: Manifest, lengths: npt.NDArray[np.int64], memory: int, disk: int
) -> list[str]:
    """One line each. lengths: of the training documents, in tokens; memory, disk: bytes that there are."""
    found = (
        about_epochs(cfg, foreseen),
        about_vocabulary(manifest),
        about_block(cfg.model.block_size, lengths),
        about_warmup(cfg.train.effective_warmup_steps, cfg.train.updates),
        about_memory(cfg, foreseen.memory.peak, memory),
        about_disk(cfg, foreseen, disk),
    )
    return [f"warning: {line}" for lines in found for line in lines]


def about_epochs(cfg: RunConfig, foreseen: Forecast) -> Iterator[str]:
    """Reading the text again and again; not where `patience` ends it."""
    epochs = foreseen.reading.epochs
    if epochs is None or epochs <= MOST_EPOCHS or cfg.train.patience is not None:
        return
    clock = cfg.train.max_minutes is not None
    length = f"max_minutes = {cfg.train.max_minutes:g}" if clock else f"max_steps = {cfg.train.updates}"
    yield (
        f"train.{length}: {epochs:,.0f} epochs: past about {MOST_EPOCHS} the text teaches little more and is learned "
        f"by heart; train {100 * MOST_EPOCHS / epochs:.2g}% as long, give more text, or set train.patience"
    )


def about_vocabulary(manifest: Manifest) -> Iterator[str]:
    """Ids too rare to be learned; not of characters, whose number nobody chooses."""
    tokenizer, tokens = manifest.tokenizer, manifest.train.tokens
    if tokenizer.kind == "char" or tokens >= LEAST_TOKENS_PER_ID * tokenizer.vocab_size:
        return
    fitting = 2 ** (max(1, tokens // LEAST_TOKENS_PER_ID).bit_length() - 1)
    smaller = f"bpe with vocab_size={fitting}" if fitting > 256 else "char"
    per_id = f"{tokens / tokenizer.vocab_size:.3g}"
    yield (
        f"tokenizer.vocab_size = {tokenizer.vocab_size}: the text has {per_id} tokens for each id, and below "
        f"{LEAST_TOKENS_PER_ID} the rare ones come too seldom to be learned; set tokenizer.kind to {smaller}"
    )


def about_block(block_size: int, lengths: npt.NDArray[np.int64]) -> Iterator[str]:
    """A context that mostly reaches into other documents. Of a single document nothing is known."""
    total = int(lengths.sum())
    short = int(lengths[lengths < block_size].sum())
    if len(lengths) < 2 or short <= total / 2:
        return
    ordered = np.sort(lengths)
    longest = ordered[np.searchsorted(np.cumsum(ordered), total / 2)]
    yield (
        f"model.block_size = {block_size}: {short / total:.0%} of the text is documents shorter than that, and what "
        f"stands in other documents does not help; set it to {longest} or less"
    )


def about_warmup(warmup_steps: int, updates: int | None) -> Iterator[str]:
    """A learning rate that is still rising when it should fall."""
    if updates is None or warmup_steps <= LONGEST_WARMUP * updates:
        return
    yield (
        f"train.warmup_steps = {warmup_steps}: {warmup_steps / updates:.0%} of {updates} updates are spent below the "
        f"learning rate that they lead to; set it to {int(LONGEST_WARMUP * updates)} or less"
    )


def about_memory(cfg: RunConfig, needed: int, there: int) -> Iterator[str]:
    """More than the machine, or the GPU, has."""
    if needed > there:
        yield (
            f"memory = {size(needed)}: there are {size(there)}, and a process that needs more is stopped; "
            f"lower train.micro_batch_size ({cfg.train.micro_batch_size}), eval.batch_size ({cfg.eval.batch_size}) "
            "or the size of the model"
        )


def about_disk(cfg: RunConfig, foreseen: Forecast, there: int) -> Iterator[str]:
    """Checkpoints that fill the disk: a new one is written before an old one goes."""
    needed = foreseen.disk.total + foreseen.disk.checkpoint
    if needed > there:
        yield (
            f"save.keep = {cfg.save.keep}: {foreseen.disk.kept} checkpoints and the one being written take "
            f"{size(needed)}, and {size(there)} are free; lower it, or set run.dir to another disk"
        )
