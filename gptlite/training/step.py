"""One update of the parameters."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from gptlite.compute.device import Compute
from gptlite.compute.distributed import Dist
from gptlite.config.schema import RunConfig
from gptlite.data.batches import Batches
from gptlite.errors import ConfigError, Diverged
from gptlite.loggers.media import Histogram
from gptlite.model.dropout import DropoutMasks
from gptlite.model.gpt import GPT, nll_sum
from gptlite.seeds import mix
from gptlite.training.diagnostics import (
    NO_DIAGNOSTICS,
    Diagnostics,
    gradient_histograms,
    layer_grad_norms,
    learning_rates,
)
from gptlite.training.optim.build import Optimizers, set_lr
from gptlite.training.schedule import lr_at
from gptlite.training.scheduled_sampling import mixed_inputs, random_bits, replaced_fraction_at

DROPOUT_STREAM = 4  # data.order has 1 to 3

# Measured on CPUs: beyond about this many tokens a forward pass outgrows the caches and slows per token.
CPU_MICRO_TOKENS = 4096
GPU_MICRO_TOKENS = 65536


@dataclass(frozen=True)
class StepStats:
    """What one update showed: mean loss in nats per token, norm of the whole gradient before clipping.

    more: what else was asked for, by the names of the metrics; gradients: histograms by their tags.
    """

    loss: float
    grad_norm: float
    lr: float
    more: Mapping[str, float] = field(default_factory=dict)
    gradients: Mapping[str, Histogram] = field(default_factory=dict)


def rows_per_process(batch_size: int, world_size: int) -> int:
    """Sequences of each update that one process computes. ConfigError where they cannot be shared evenly."""
    if batch_size % world_size:
        raise ConfigError(
            f"train.batch_size = {batch_size}: a multiple of the {world_size} processes; change one of the two"
        )
    return batch_size // world_size


def choose_micro_batch_size(cfg: RunConfig, compute: Compute, world_size: int) -> tuple[int, str]:
    """What `auto` becomes, and why: the largest divisor of a process's rows whose tokens fit the device's budget."""
    rows = rows_per_process(cfg.train.batch_size, world_size)
    given = cfg.train.micro_batch_size
    if given != "auto":
        if rows % given:
            raise ConfigError(
                f"train.micro_batch_size = {given}: a divisor of the {rows} sequences that each of {world_size} "
                "processes has of a batch; change it or train.batch_size"
            )
        return given, f"micro_batch_size {given}: as asked"
    budget = CPU_MICRO_TOKENS if compute.device.type == "cpu" else GPU_MICRO_TOKENS
    fitting = [n for n in range(1, rows + 1) if rows % n == 0 and n * cfg.model.block_size <= budget]
    size = max(fitting, default=1)
    return size, f"micro_batch_size {size}: at most {budget} tokens a pass"


def make_dropout_masks(cfg: RunConfig, step: int, micro_step: int, rank: int) -> DropoutMasks | None:
    """The masks of one forward pass: a pure function of its arguments. None without dropout."""
    if cfg.model.dropout == 0.0:
        return None
    return DropoutMasks(mix(cfg.run.seed, DROPOUT_STREAM, step, micro_step, rank))


def accumulate_gradients(
    model: GPT, batches: Batches, step: int, cfg: RunConfig, compute: Compute, dist: Dist, share: float = 0.0
) -> Tensor:
    """Add the gradient of the mean loss of batch `step` to the parameters; this process's part of that loss.

    Every micro-batch is divided by the tokens of the whole batch, so that however the batch is cut up, over time
    or over processes, the sum is the same mean. share: of the inputs, that the model's own proposals replace.
    """
    rows = rows_per_process(cfg.train.batch_size, dist.world_size)
    micro = cfg.train.micro_batch_size
    assert isinstance(micro, int), "choose_micro_batch_size comes first"
    tokens = cfg.train.batch_size * cfg.model.block_size
    total = torch.zeros((), device=compute.device)
    for micro_step in range(rows // micro):
        first_row = dist.rank * rows + micro_step * micro
        x, y = batches.rows(step, first_row, micro)  # (micro, T) each
        x = x.to(compute.device)
        if share > 0.0:
            x = mixed_inputs(model, x, share, random_bits(cfg.run.seed, step, first_row, *x.shape), compute)
        dropout_masks = make_dropout_masks(cfg, step, micro_step, dist.rank)
        with compute.autocast():
            logits = model(x, dropout_masks=dropout_masks)
        loss = nll_sum(logits, y.to(compute.device)) / tokens
        loss.backward()  # type: ignore[no-untyped-call]
        total = total + loss.detach()
    return total


def diverged(step: int, what: str, lr: float | None) -> Diverged:
    """The error for figures of `step` that are not finite. lr: of the updates before; None where there were none."""
    if lr is None:
        return Diverged(
            f"step {step}: {what}: only finite numbers; nothing was trained yet, so the arithmetic of this machine is "
            "the likely cause: try run.precision=fp32, run.attention=plain or another version of torch"
        )
    return Diverged(
        f"step {step}: {what}: only finite numbers; start a new run with a lower train.lr (it was {lr:.3g}) "
        "or more train.warmup_steps"
    )


def train_step(
    model: GPT,
    optimizers: Optimizers,
    batches: Batches,
    step: int,
    cfg: RunConfig,
    compute: Compute,
    dist: Dist,
    elapsed_fraction: float | None = None,
    watch: Diagnostics = NO_DIAGNOSTICS,
) -> StepStats:
    """Update `step` (the first is 0) in place. Diverged, before anything changes, if loss or gradient is not finite.

    time_gone: under max_minutes, the share of the time that is gone.
    """
    lr = lr_at(step, cfg.train, elapsed_fraction)
    share = replaced_fraction_at(step, cfg.train, elapsed_fraction)
    loss = dist.sum(accumulate_gradients(model, batches, step, cfg, compute, dist, share))
    dist.sum_gradients(model.parameters())
    more = layer_grad_norms(model) if watch.layers else {}
    gradients = gradient_histograms(model) if watch.gradients else {}
    limit = math.inf if cfg.train.grad_clip is None else cfg.train.grad_clip
    grad_norm = torch.nn.utils.clip_grad_norm_(model.parameters(), limit)
    stats = StepStats(loss.item(), grad_norm.item(), lr, more, gradients)
    if not (math.isfinite(stats.loss) and math.isfinite(stats.grad_norm)):
        raise diverged(
            step + 1, f"loss = {stats.loss:.4g}, norm of the gradient = {stats.grad_norm:.4g}", lr if step else None
        )
    set_lr(optimizers, lr)
    before = None if watch.movement is None else watch.movement.numbers()
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    if watch.movement is None or before is None:
        return stats
    return replace(stats, more={**more, **learning_rates(optimizers), "update_ratio": watch.movement.ratio(before)})
