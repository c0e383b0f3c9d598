"""From a config to a Trainer: `resolve` replaces every `auto` and says why (pure), `build` makes the objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from gptlite.compute.choice import GIVEN, Choice
from gptlite.compute.compiling import choose_compile
from gptlite.compute.device import Compute, Hardware, choose_compute, torch_device
from gptlite.compute.distributed import Dist
from gptlite.compute.memory import memory_of, resident_bytes
from gptlite.compute.processes import local_rank, world_size
from gptlite.compute.rendezvous import check_same
from gptlite.config.schema import RunConfig
from gptlite.data.dataset.batches import Batches
from gptlite.data.dataset.prepared import Prepared
from gptlite.data.dataset.tokens import Tokens, count_ids
from gptlite.errors import ConfigError, located
from gptlite.formatting import counted
from gptlite.inference.language_model import LanguageModel, ModelInfo
from gptlite.model.gpt import GPT
from gptlite.model.sampled_softmax import VocabSampler
from gptlite.model.sizes import largest_block_product_flops, update_flops
from gptlite.planning.epochs import choose_eval_every, choose_max_steps
from gptlite.planning.estimate import advise_less_memory
from gptlite.tokenizers.base import Tokenizer
from gptlite.training.checkpointing import Identity
from gptlite.training.optim.build import build_optimizers, choose_optimizer
from gptlite.training.reconcile import facts_of_process
from gptlite.training.schedule import choose_adamw_lr, choose_lr
from gptlite.training.step import choose_micro_batch_size, choose_vocab_sample
from gptlite.training.trainer import Trainer


@dataclass(frozen=True)
class Setup:
    """A config without `auto`, and the reason of each choice by its key."""

    cfg: RunConfig
    reasons: Mapping[str, Choice]

    def __str__(self) -> str:
        """The choices on one line."""
        run, train = self.cfg.run, self.cfg.train
        length = self.reasons["train.max_steps"]
        parts = [
            run.device,
            run.precision,
            f"{run.attention} attention",
            "compiled" if run.compile else "",
            counted(world_size(), "process") if world_size() > 1 else "",
            counted(run.threads, "thread") if isinstance(run.threads, int) else "",
            train.optimizer,
            f"lr {train.lr}" if train.adamw_lr is None else f"lr {train.lr} and {train.adamw_lr}",
            f"micro-batches of {counted(train.micro_batch_size, 'sequence')}",  # type: ignore[arg-type]
            f"loss estimated from {train.vocab_sample:,} ids" if isinstance(train.vocab_sample, int) else "",
            "" if length.reason == GIVEN else f"{counted(length.value, 'update')} ({length.reason})",
        ]
        return ", ".join(filter(None, parts))


def resolve(cfg: RunConfig, vocab_size: int, train_tokens: int, hardware: Hardware, n_processes: int = 1) -> Setup:
    """Replace every `auto`, and epochs by updates: a pure function of its arguments.

    ConfigError where a requested value is impossible. train_tokens: of the training text.

    The order matters: attention follows from precision, the learning rate from the optimizer.
    """
    check_without_mask(cfg)
    tokens = cfg.train.batch_size * cfg.model.block_size
    largest_product = largest_block_product_flops(cfg.model, tokens / n_processes)
    reasons = choose_compute(cfg.run, cfg.model.block_size, hardware, largest_product=largest_product)
    device = reasons["run.device"].value
    reasons["train.optimizer"] = choose_optimizer(cfg, vocab_size)
    reasons["train.max_steps"] = choose_max_steps(cfg, train_tokens)
    reasons["run.compile"] = choose_compile(
        cfg.run.compile,
        device,
        hardware.compile_obstacle,
        flops=update_flops(cfg.model, vocab_size, tokens) / n_processes * (reasons["train.max_steps"].value or 0),
        minutes=cfg.train.max_minutes,
    )
    cfg = cfg.with_values({"train.epochs": None, **{key: choice.value for key, choice in reasons.items()}})
    reasons["eval.every"] = choose_eval_every(cfg, train_tokens)
    reasons["train.lr"] = choose_lr(cfg)
    reasons["train.adamw_lr"] = choose_adamw_lr(cfg, vocab_size)
    for key, value in zip(("beta1", "beta2"), cfg.train.betas, strict=True):
        given = getattr(cfg.train, key) != "auto"
        reasons[f"train.{key}"] = Choice(value, GIVEN if given else f"with {cfg.train.optimizer}")
    reasons["train.vocab_sample"] = choose_vocab_sample(cfg, vocab_size)
    reasons["train.micro_batch_size"] = choose_micro_batch_size(cfg, n_processes)
    return Setup(cfg.with_values({key: choice.value for key, choice in reasons.items()}), reasons)


def check_without_mask(cfg: RunConfig) -> None:
    """ConfigError where a model without a mask would have to predict, or to show how it does."""
    asked = {"train.scheduled_sampling": cfg.train.scheduled_sampling > 0.0, "log.attention": cfg.log.attention}
    problems = [
        f"{key} is set, but model.variant is no_mask, and a model that reads the next token does not predict it. Leave "
        f"{key} out, or use model.variant=null."
        for key, is_set in asked.items()
        if is_set and cfg.model.sees_ahead
    ]
    if problems:
        raise ConfigError(problems)


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
    identity = Identity(manifest.tokenizer.fingerprint, manifest.fingerprint, cfg.train.optimizer)
    train, validation = prepared.split("train"), prepared.split("val")
    trainer = assemble(cfg, prepared.tokenizer(), train, validation, start_id=manifest.start_id, identity=identity)
    with located("eval.prompt"):
        trainer.language_model.encode(cfg.eval.prompt)
    return trainer


def assemble(
    cfg: RunConfig, tokenizer: Tokenizer, train: Tokens, validation: Tokens, *, start_id: int, identity: Identity
) -> Trainer:
    """`build` from its parts. The parameters are initialised from the seed on the CPU: the same on every device."""
    compute = Compute.of(cfg.run, local_rank())
    dist = Dist.from_environment(compute.device)
    with memory_errors(cfg, tokenizer.vocab_size):
        rng = torch.Generator().manual_seed(cfg.run.seed)
        model = GPT(cfg.model, tokenizer.vocab_size, attention=compute.attention, rng=rng).to(compute.device)
        # Only training computes the same shapes again and again.
        hidden = torch.compile(model.hidden, dynamic=False) if cfg.run.compile else model.hidden
        optimizers = build_optimizers(model, cfg.train, compute)
    batches = Batches(train, cfg.model.block_size, cfg.train.batch_size, cfg.run.seed, cfg.data.order)
    language_model = LanguageModel(model, tokenizer, ModelInfo(cfg.model, start_id, cfg.data.normalize), compute)
    sample = cfg.train.vocab_sample
    sampler = VocabSampler(count_ids(train, tokenizer.vocab_size), sample) if isinstance(sample, int) else None
    return Trainer(
        cfg, model, hidden, sampler, optimizers, batches, compute, dist, validation, language_model, identity
    )


@contextmanager
def memory_errors(cfg: RunConfig, vocab_size: int) -> Iterator[None]:
    """Turn the ways in which Python and torch run out of memory into a ConfigError, which says what to lower."""
    libraries = resident_bytes()
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        full = isinstance(error, MemoryError | torch.OutOfMemoryError)
        if not full and "allocate memory" not in str(error):
            raise
        available = memory_of(torch_device(cfg.run.device, local_rank()))
        advice = advise_less_memory(cfg, vocab_size, available=available, n_processes=world_size(), libraries=libraries)
        raise ConfigError(
            f"The memory is full: {counted(cfg.model.n_layer, 'layer')} of width {cfg.model.n_embd} with micro-batches "
            f"of {counted(cfg.train.micro_batch_size, 'sequence')} of {cfg.model.block_size} tokens do not fit. "  # type: ignore[arg-type]
            f"{advice}"
        ) from error
