"""The rules of `auto`: `resolve` replaces every such value of a config, and says why.

The choices depend on the config, the text and the hardware, never on a measurement: equal commands on equal machines
must give equal runs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gptlite.compute.choice import DEVICES, GIVEN, Choice
from gptlite.config.schema import RunConfig, RunSection
from gptlite.config.yaml import write
from gptlite.errors import ConfigError
from gptlite.formatting import counted
from gptlite.model.sizes import default_sample_size, largest_block_product_flops, update_flops
from gptlite.planning.choose_training import (
    choose_adamw_lr,
    choose_eval_every,
    choose_lr,
    choose_max_steps,
    choose_optimizer,
)

if TYPE_CHECKING:
    from gptlite.compute.device import Compute, Hardware

LONGEST_BATCHED = 512  # tokens; with 1,024 the fused kernel measured alike, and it needs less memory
# Operations of a matrix product. A second thread gained nothing with 4e6, and 12 % with 19e6.
MIN_PRODUCT_FOR_THREADS = 10e6
# A kernel of mps takes 25 to 110 us to start (pytorch/pytorch#82707); by then a Mac's CPU has made smaller products.
MIN_PRODUCT_FOR_MPS = 2e9
LONG_FLOPS, LONG_MINUTES = 1e16, 5.0  # of a training, from which on compiling pays for its slow start
# Measured on CPUs: with more tokens a forward pass outgrows the caches and takes longer per token.
CPU_MICRO_TOKENS, GPU_MICRO_TOKENS = 4096, 65536


@dataclass(frozen=True)
class Setup:
    """A config without `auto`, and the reason of each choice by its key."""

    cfg: RunConfig
    reasons: Mapping[str, Choice]

    def __str__(self) -> str:
        """Return the values on one line, by their keys in sections run and train without the section."""
        values = {key: choice.value for key, choice in self.reasons.items() if choice.value is not None}
        return ", ".join(f"{re.sub('^(run|train)[.]', '', key)} {write(value)}" for key, value in values.items())


def resolve(cfg: RunConfig, vocab_size: int, train_tokens: int, hardware: Hardware, n_processes: int = 1) -> Setup:
    """Replace every `auto`, and epochs by updates: a pure function of its arguments.

    ConfigError where a requested value is impossible. train_tokens: of the training text.

    The order matters: attention follows from precision, the learning rate from the optimizer.
    """
    check_model(cfg)
    tokens = cfg.train.batch_size * cfg.model.block_size
    largest_product = largest_block_product_flops(cfg.model, tokens / n_processes)
    reasons = choose_compute(cfg.run, cfg.model.block_size, hardware, largest_product=largest_product)
    reasons["train.optimizer"] = choose_optimizer(cfg, vocab_size)
    reasons["train.max_steps"] = choose_max_steps(cfg, train_tokens)
    reasons["run.compile"] = choose_compile(
        cfg.run.compile,
        reasons["run.device"].value,
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


def resolve_compute(run: RunSection, block_size: int) -> Compute:
    """Resolve a run section on this machine, for a model of this context length."""
    from gptlite.compute.device import Compute, Hardware  # imports torch

    choices = choose_compute(run, block_size, Hardware.detect())
    values = {key.removeprefix("run."): choice.value for key, choice in choices.items()}
    return Compute.of(run.model_copy(update=values))


def check_model(cfg: RunConfig) -> None:
    """Raise ConfigError where a model without a mask would have to predict, or to show how it does, and where
    train.freeze names blocks that the model does not have."""
    asked = {"train.scheduled_sampling": cfg.train.scheduled_sampling > 0.0, "log.attention": cfg.log.attention}
    for key, is_set in asked.items():
        if is_set and cfg.model.sees_ahead:
            raise ConfigError(
                f"{key} is set, but model.variant is no_mask, and a model that reads the next token does not predict "
                f"it. Leave {key} out, or use model.variant=null."
            )
    last = cfg.model.n_layer - 1
    if any(blocks.stop > last + 1 or not blocks for blocks in cfg.train.frozen_blocks):
        named = ", ".join(cfg.train.freeze or ())
        raise ConfigError(f"train.freeze is {named}, and the blocks of this model are 0 to {last}.")


def choose_compute(
    run: RunSection, block_size: int, hardware: Hardware, *, largest_product: float = math.inf
) -> dict[str, Choice]:
    """Choose the keys of the run section that say how a model is computed, by full name.

    largest_product: operations of the model's larger matrix products, where it is trained.
    ConfigError where the device is not available.
    """
    device = choose_device(run.device, hardware, largest_product)
    precision = choose_precision(run.precision, device.value, hardware)
    attention = choose_attention(run.attention, device.value, precision.value, block_size)
    threads = choose_threads(run.threads, hardware.available_threads, largest_product=largest_product)
    return {"run.device": device, "run.precision": precision, "run.attention": attention, "run.threads": threads}


def choose_device(wanted: str, hardware: Hardware, largest_product: float) -> Choice:
    """Choose the fastest device that torch finds, mps only to train a model with products that are worth its kernels.

    ConfigError where the one asked for is not among them. largest_product: infinite where nothing is trained.
    """
    if wanted == "auto":
        is_large = MIN_PRODUCT_FOR_MPS <= largest_product < math.inf
        fitting = [device for device in hardware.devices if device != "mps" or is_large]
        return Choice(fitting[0], f"the first of {', '.join(DEVICES)} that torch finds; mps only trains larger models")
    if wanted not in hardware.devices:
        available = ", ".join(hardware.devices)
        raise ConfigError(
            f"run.device is {wanted}, and torch finds no such device here. Use run.device=auto, or one of {available}."
        )
    return Choice(wanted, GIVEN)


def choose_precision(wanted: str, device: str, hardware: Hardware) -> Choice:
    """Choose bf16 where the hardware multiplies it."""
    if wanted != "auto":
        return Choice(wanted, GIVEN)
    if device in hardware.multiply_bf16:
        return Choice("bf16", f"this {device} multiplies bf16")
    other = "; run.precision=fp16 may be faster" if device == "cuda" else ""
    return Choice("fp32", f"this {device} does not multiply bf16{other}")


def choose_attention(wanted: str, device: str, precision: str, block_size: int) -> Choice:
    """Choose one of the paths in model/attention.py.

    In fp32 they measured alike up to 256 tokens, and the fused kernel needs the least memory. A CPU's bf16 kernel is
    slow in the backward pass: up to 512 tokens, a step with two batched products took 0.57 to 0.8 of the time.
    """
    if wanted != "auto":
        return Choice(wanted, GIVEN)
    if device == "cpu" and precision == "bf16" and block_size <= LONGEST_BATCHED:
        return Choice("batched", f"faster in bf16 on a CPU up to a block_size of {LONGEST_BATCHED}")
    return Choice("fused", "the kernel that needs the least memory")


def choose_threads(
    wanted: int | str, find_available: Callable[[], Choice], *, largest_product: float = math.inf
) -> Choice:
    """Choose all available threads, or one where the model's matrix products are too small to share.

    find_available: asked only for `auto`. largest_product: operations of the model's larger matrix products.
    """
    if wanted != "auto":
        return Choice(wanted, GIVEN)
    available = find_available()
    if available.value > 1 and largest_product < MIN_PRODUCT_FOR_THREADS:
        return Choice(
            1, f"products of only {largest_product / 1e6:.2g} million operations gain nothing from a second thread"
        )
    return available


def choose_compile(
    wanted: bool | str, device: str, obstacle: Callable[[str], str], *, flops: float, minutes: float | None
) -> Choice:
    """Choose whether to compile the model: for a long training on a GPU for which torch can.

    ConfigError where `run.compile` is true and torch cannot.

    obstacle: why torch cannot compile for a device; empty where it can. flops: operations of the whole training; where
    minutes end it, they count instead.
    """
    if wanted is False:
        return Choice(False, GIVEN)
    if wanted == "auto" and device != "cuda":
        # On CPUs a compiled step took 0.9 to 1.4 times as long as a plain one, after a minute of compiling.
        return Choice(False, f"on {device} compiling seldom pays for its slow start")
    if wanted == "auto" and (flops < LONG_FLOPS if minutes is None else minutes < LONG_MINUTES):
        # On an H100 it took 20 to 28 s and saved 16 % of a step of 6 x 384, 28 % of 12 x 768.
        return Choice(False, "so short a training does not pay for the slow start of compiling")
    problem = obstacle(device)
    if wanted is True and problem:
        raise ConfigError(
            f"run.compile is true, but {problem}. Install what is missing (a C++ compiler and Python's headers, on a "
            "GPU Triton), or use run.compile=auto."
        )
    return Choice(not problem, GIVEN if wanted is True else problem or "torch can compile for this GPU")


def choose_vocab_sample(cfg: RunConfig, vocab_size: int) -> Choice:
    """Choose a sample of a large vocabulary on a CPU, where its logits are most of the work. The device comes first."""
    wanted = cfg.train.vocab_sample
    if wanted == "auto" and cfg.train.ngram_teacher > 0.0:
        return Choice(None, "an n-gram teacher says what to expect of all of them")
    if wanted == "auto":
        size = default_sample_size(cfg.model, vocab_size) if cfg.run.device == "cpu" else None
        return Choice(size, f"{vocab_size:,} ids at width {cfg.model.n_embd} on {cfg.run.device}")
    if wanted is not None and wanted >= vocab_size:
        raise ConfigError(
            f"train.vocab_sample is {wanted}, and the vocabulary has {counted(vocab_size, 'id')}. Use fewer, or null "
            "for all."
        )
    return Choice(wanted, GIVEN)


def choose_micro_batch_size(cfg: RunConfig, n_processes: int) -> Choice:
    """Choose the largest divisor of a process's rows whose tokens fit the budget of the device, which comes first."""
    batch_size, wanted = cfg.train.batch_size, cfg.train.micro_batch_size
    if batch_size % n_processes:
        raise ConfigError(
            f"train.batch_size is {batch_size}, which is not a multiple of the {n_processes} processes. "
            "Change one of the two."
        )
    rows = batch_size // n_processes
    if wanted != "auto" and rows < wanted <= batch_size:  # as for a run of fewer processes
        return Choice(rows, "all that each process has")
    if wanted != "auto":
        if rows % wanted:
            raise ConfigError(
                f"train.micro_batch_size is {wanted}, which does not divide the {counted(rows, 'sequence')} of a batch "
                f"that each of {counted(n_processes, 'process')} computes. Change it or train.batch_size."
            )
        return Choice(wanted, GIVEN)
    budget = CPU_MICRO_TOKENS if cfg.run.device == "cpu" else GPU_MICRO_TOKENS
    most = min(rows, max(1, budget // cfg.model.block_size))
    fitting = next(n for n in range(most, 0, -1) if rows % n == 0)
    return Choice(fitting, f"at most {budget:,} tokens per forward pass")
