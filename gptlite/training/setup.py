"""From a config to a Trainer: `resolve_here` replaces every `auto`, `build` makes the objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

import torch

from gptlite.compute.device import Compute, Hardware
from gptlite.compute.distributed import Dist
from gptlite.compute.processes import local_rank, world_size
from gptlite.compute.rendezvous import check_same
from gptlite.config.schema import RunConfig
from gptlite.data.dataset.batches import Batches
from gptlite.data.dataset.prepared import Prepared
from gptlite.data.dataset.tokens import Tokens, count_ids
from gptlite.errors import ConfigError, located
from gptlite.inference.language_model import LanguageModel, ModelInfo
from gptlite.model.gpt import GPT
from gptlite.model.sampled_softmax import VocabSampler
from gptlite.planning.auto import Setup, resolve
from gptlite.planning.plan import advise_less_memory
from gptlite.tokenizers.base import Tokenizer
from gptlite.training.optim.build import build_optimizers
from gptlite.training.reconcile import deciding_values, facts_of_process
from gptlite.training.trainer import Trainer


def resolve_here(cfg: RunConfig, prepared: Prepared) -> Setup:
    """`resolve` for this machine, this process and the vocabulary of a prepared text.

    ConfigError where other processes of the run come to something else.
    """
    tokenizer, train = prepared.manifest.tokenizer, prepared.manifest.train
    setup = resolve(cfg, tokenizer.vocab_size, train.tokens, Hardware.detect(local_rank()), world_size())
    check_same(facts_of_process(setup.cfg, tokenizer=tokenizer.fingerprint[:12]))
    return setup


def build(cfg: RunConfig, prepared: Prepared) -> Trainer:
    """Join the other processes and make everything that a resolved config trains with on a prepared text.

    ConfigError where the memory does not suffice, DataError where `eval.prompt` has characters that the tokenizer does
    not know.
    """
    manifest = prepared.manifest
    fingerprints = {"tokenizer": manifest.tokenizer.fingerprint, "text": manifest.fingerprint}
    train, validation = prepared.split("train"), prepared.split("val")
    trainer = assemble(cfg, prepared.tokenizer(), train, validation, manifest.start_id, fingerprints)
    with located("eval.prompt"):
        trainer.language_model.encode(cfg.eval.prompt)
    return trainer


def assemble(
    cfg: RunConfig,
    tokenizer: Tokenizer,
    train: Tokens,
    validation: Tokens,
    start_id: int = 0,
    fingerprints: Mapping[str, str] = MappingProxyType({}),
) -> Trainer:
    """`build` from its parts. The parameters are initialised from the seed on the CPU: the same on every device."""
    compute = Compute.of(cfg.run, local_rank())
    dist = Dist.from_environment(compute.device)
    with memory_errors(cfg):
        rng = torch.Generator().manual_seed(cfg.run.seed)
        model = GPT(cfg.model, tokenizer.vocab_size, attention=compute.attention, rng=rng).to(compute.device)
        # Only training computes the same shapes again and again.
        hidden = torch.compile(model.hidden, dynamic=False) if cfg.run.compile else model.hidden
        optimizers = build_optimizers(model, cfg.train, compute)
    batches = Batches(train, cfg.model.block_size, cfg.train.batch_size, cfg.run.seed, cfg.data.order)
    language_model = LanguageModel(model, tokenizer, ModelInfo(cfg.model, start_id, cfg.data.normalize), compute)
    sample = cfg.train.vocab_sample
    sampler = VocabSampler(count_ids(train, tokenizer.vocab_size), sample) if isinstance(sample, int) else None
    deciding = {**deciding_values(cfg), **fingerprints}
    return Trainer(
        cfg, model, hidden, sampler, optimizers, batches, compute, dist, validation, language_model, deciding
    )


@contextmanager
def memory_errors(cfg: RunConfig) -> Iterator[None]:
    """Turn the ways in which Python and torch run out of memory into a ConfigError, which says what to lower."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        full = isinstance(error, MemoryError | torch.OutOfMemoryError)
        if not full and "allocate memory" not in str(error):
            raise
        raise ConfigError(f"The memory is full. {advise_less_memory(cfg)}.") from error
