"""One update of the parameters, and its learning rate."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gptlite.compute.device import Arriving, send
from gptlite.compute.distributed import peer_errors, whole
from gptlite.config.schema import RunConfig
from gptlite.config.training import TrainSection
from gptlite.course.scheduled_sampling import random_bits, replaced_fraction_at
from gptlite.errors import Diverged
from gptlite.model.dropout import DropoutMasks
from gptlite.model.sampled_softmax import VocabSample
from gptlite.seeds import mix, mix_arrays
from gptlite.training.diagnostics import UpdateRatio, layer_grad_norms, learning_rates
from gptlite.training.ngram_teacher import NgramTeacher
from gptlite.training.objective import DRAWS, Randomness
from gptlite.training.optim.build import Together, set_lr
from gptlite.training.sharing import divide, exchanging, is_shared, replicated
from gptlite.training.trainer import Trainer


def lr_at(step: int, cfg: TrainSection, elapsed_fraction: float | None = None) -> float:
    """Learning rate of update `step` (the first is 0): linear warm-up, then the decay to lr * min_lr_ratio.

    cosine and linear decay from the end of the warm-up on; constant holds until its last `constant_decay` of the
    updates and falls linearly there. The rate reaches the minimum where one more update would follow the last.

    elapsed_fraction: under max_minutes, how much of the time has passed. The decay then follows it instead of the
    updates, from the beginning, since nobody knows when the warm-up will end.

    >>> lr_at(0, TrainSection(lr=1e-3, warmup_steps=10))
    0.0001
    """
    warmup_steps = cfg.effective_warmup_steps
    at, start, end = float(step), float(warmup_steps), float(cfg.updates or 0)
    if elapsed_fraction is not None:
        at, start, end = elapsed_fraction, 0.0, 1.0
    if cfg.schedule == "constant":
        start = max(start, end - cfg.constant_decay * end)
    progress = 0.0 if at <= start else min(1.0, (at - start) / (end - start))
    shape = 0.5 * (1 + math.cos(math.pi * progress)) if cfg.schedule == "cosine" else 1 - progress
    lr = cfg.highest_lr * (cfg.min_lr_ratio + (1 - cfg.min_lr_ratio) * shape)
    return lr * (step + 1) / warmup_steps if step < warmup_steps else lr


DROPOUT_STREAM = 4  # of the seed; scheduled sampling has another
VOCAB_STREAM = 6
TEACHER_STREAM = 7


@dataclass(frozen=True)
class StepStats:
    """Results of one update. Its loss and norm are read from the device when they are asked for.

    more: other metrics that were asked for, by name. may_skip: no update is made where the gradient is not finite.
    """

    step: int  # the first update is 1
    lr: float
    loss_and_norm: Arriving
    more: Mapping[str, float] = field(default_factory=dict)
    may_skip: bool = False

    @property
    def loss(self) -> float:
        """Mean loss in nats per token."""
        return self.loss_and_norm.read()[0]

    @property
    def grad_norm(self) -> float:
        """Norm of the whole gradient before clipping."""
        return self.loss_and_norm.read()[1]

    def check_finite(self, cfg: RunConfig) -> None:
        """Raise Diverged if the loss or the gradient is not finite, and scaling the loss does not help."""
        can_scale = self.may_skip and self.more.get("loss_scale", 1.0) >= 1.0
        if not (math.isfinite(self.loss) and (can_scale or math.isfinite(self.grad_norm))):
            what = f"the loss is {self.loss:.4g} and the norm of the gradient {self.grad_norm:.4g}"
            raise diverged(self.step, what, cfg)


def dropout_masks_for(
    cfg: RunConfig, step: int, micro_step: int, rank: int, device: torch.device | None = None
) -> DropoutMasks | None:
    """Return the masks of one forward pass: a pure function of the first four arguments. None without dropout."""
    if not any(cfg.model.dropouts):
        return None
    seed = mix(cfg.run.seed, DROPOUT_STREAM, step, micro_step, rank)
    # One for the embeddings, and in each block for the attention weights and two outputs.
    return DropoutMasks(seed, n_masks=1 + 3 * cfg.model.n_layer, device=device)


def vocab_sample_for(trainer: Trainer, step: int) -> VocabSample | None:
    """Return the ids that estimate the loss of an update, the same in all processes; None where all are scored."""
    if trainer.vocab_sampler is None:
        return None
    return trainer.vocab_sampler.sample(mix(trainer.cfg.run.seed, VOCAB_STREAM, step), trainer.compute.device)


def taught_targets(trainer: Trainer, teacher: NgramTeacher, step: int, first_row: int, n_rows: int) -> Tensor:
    """Return draws of the n-gram teacher for every target of these rows of batch `step`: (n_rows, T, DRAWS).

    They are a pure function of (seed, step, row, position). The mean loss of many is the cross entropy with the
    teacher's distribution.
    """
    T = trainer.cfg.model.block_size
    positions = trainer.batches.starts(step, first_row, n_rows)[:, None] + np.arange(1, T + 1)  # (n_rows, T)
    places = np.arange(first_row * T * DRAWS, (first_row + n_rows) * T * DRAWS, dtype=np.uint64)
    numbers = mix_arrays(trainer.cfg.run.seed, TEACHER_STREAM, step, places)
    drawn = teacher.draw(np.repeat(positions.ravel(), DRAWS), numbers).reshape(n_rows, T, DRAWS)
    return send(torch.from_numpy(drawn), trainer.compute.device)


def drawn_for(
    trainer: Trainer, step: int, micro_step: int, first_row: int, sample: VocabSample | None, replaced_fraction: float
) -> Randomness:
    """Return what a micro-batch of this process draws: the rows of batch `step` from `first_row` on."""
    cfg, dist = trainer.cfg, trainer.dist
    n_rows, T, teacher, bits = micro_batch_size(cfg), cfg.model.block_size, trainer.teacher, None
    if replaced_fraction > 0.0:
        bits = random_bits(cfg.run.seed, step, first_row, n_rows, T)
    return Randomness(
        masks=dropout_masks_for(cfg, step, micro_step, dist.rank, trainer.compute.device),
        sample=sample,
        taught=None if teacher is None else taught_targets(trainer, teacher, step, first_row, n_rows),
        bits=bits,
    )


def accumulate_gradients(trainer: Trainer, step: int, replaced_fraction: float = 0.0) -> Tensor:
    """Add the gradient of the mean loss of batch `step` to the parameters; return this process's part of that loss.

    The loss of every micro-batch is divided by the tokens of the whole batch. However the batch is split, over time or
    over processes, the sum is the same mean. The loss that is returned is that of the text, also where a teacher has a
    share in the gradient. replaced_fraction: of the inputs, by scheduled sampling.
    """
    cfg, device, dist, loss_of = trainer.cfg, trainer.compute.device, trainer.dist, trainer.objective
    averaged_over = trainer.tokens_per_update // (dist.world_size if is_shared(loss_of) else 1)
    rows, micro = cfg.train.batch_size // dist.world_size, micro_batch_size(cfg)  # of this process
    sample, total = vocab_sample_for(trainer, step), torch.zeros((), device=device)
    for micro_step in range(rows // micro):
        first_row = dist.rank * rows + micro_step * micro
        x, y = (send(each, device) for each in trainer.batches.rows(step, first_row, micro))  # (micro, T) each
        drawn = drawn_for(trainer, step, micro_step, first_row, sample, replaced_fraction)
        with exchanging(loss_of, is_due=micro_step + 1 == rows // micro), peer_errors():
            nll, objective = loss_of(x, y, drawn, replaced_fraction)
            trainer.scaler.scale(objective / averaged_over).backward()
        total = total + nll.detach() / trainer.tokens_per_update
    return total


@contextmanager
def sharing_gradients(trainer: Trainer, step: int) -> Iterator[Trainer]:
    """Yield the trainer with gradients that torch adds up over the processes, as `run.parallel` says.

    step: the next one, whose batch is used once before, unless parameters are divided.
    """
    if trainer.dist.world_size == 1:
        yield trainer
        return
    if trainer.cfg.run.parallel == "fsdp":
        with peer_errors():
            divide(trainer)
        yield trainer
        return
    with peer_errors():
        shared = replicated(trainer.objective)
    trainer = replace(trainer, objective=shared)
    try:
        # The first backward pass settles the place of each gradient in torch's buckets, and the place the order in
        # which the processes are added. A resumed run must begin with the order that the run before it ended with.
        accumulate_gradients(trainer, step)
        shared.zero_grad()
        yield trainer
    finally:
        del shared.reducer  # its threads must end before the group of processes does


def micro_batch_size(cfg: RunConfig) -> int:
    """Return the sequences of a forward pass, of a resolved config."""
    micro = cfg.train.micro_batch_size
    assert isinstance(micro, int), "resolve comes first"
    return micro


def train_step(
    trainer: Trainer, step: int, elapsed_fraction: float | None = None, update_ratio: UpdateRatio | None = None
) -> StepStats:
    """Make update `step` (the first is 0) in place. Whether its numbers are finite is for the caller to check.

    elapsed_fraction: under max_minutes, how much of the time has passed. update_ratio: of an update that is logged,
    with what else takes long to measure.
    """
    cfg, model, optimizers, dist, scaler = trainer.cfg, trainer.model, trainer.optimizers, trainer.dist, trainer.scaler
    lr = lr_at(step, cfg.train, elapsed_fraction)
    replaced_fraction = replaced_fraction_at(step, cfg.train, elapsed_fraction)
    loss = dist.sum(accumulate_gradients(trainer, step, replaced_fraction))
    together: Any = Together(optimizers)  # all that the scaler uses of an optimizer
    scaler.unscale_(together)
    more = {"scheduled_sampling": replaced_fraction} if cfg.train.scheduled_sampling > 0.0 else {}
    if update_ratio is not None and cfg.log.grad_norms:
        more |= layer_grad_norms(model)
    if update_ratio is not None and scaler.is_enabled():
        more["loss_scale"] = scaler.get_scale()
    limit = math.inf if cfg.train.grad_clip is None else cfg.train.grad_clip
    grad_norm = whole(torch.nn.utils.clip_grad_norm_(model.parameters(), limit))
    stats = StepStats(step + 1, lr, Arriving(torch.stack([loss, grad_norm])), more, scaler.is_enabled())
    set_lr(optimizers, lr)
    before = None if update_ratio is None else update_ratio.numbers()
    scaler.step(together)
    scaler.update()
    for optimizer in optimizers:
        optimizer.zero_grad(set_to_none=True)
    if update_ratio is None or before is None:
        return stats
    return replace(stats, more={**more, **learning_rates(optimizers), "update_ratio": update_ratio.ratio(before)})


def diverged(step: int, what: str, cfg: RunConfig) -> Diverged:
    """Return the error for numbers of `step` that are not finite."""
    lr = cfg.train.highest_lr
    exact = "" if cfg.run.precision == "fp32" else ", or with run.precision=fp32"
    return Diverged(
        f"{what}. Start a new run with a lower train.lr (it was {lr:g}) or more train.warmup_steps{exact}.",
        f"step {step}",
        {"step": step, "lr": lr},
    )
