"""The loss of a micro-batch, as a module whose forward pass returns it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gptlite.compute.device import Compute
from gptlite.config.training import TrainSection
from gptlite.course.scheduled_sampling import mixed_inputs
from gptlite.model.dropout import DropoutMasks
from gptlite.model.gpt import GPT
from gptlite.model.loss import logits_of, nll_sum_of_states
from gptlite.model.sampled_softmax import VocabSample, sampled_nll_sum
from gptlite.seeds import U64

DRAWS = 4  # of the teacher for each target: with one, its gradient is noisier than that of the text


@dataclass(frozen=True)
class Randomness:
    """What an update draws for a micro-batch; None for what it does not use.

    masks: of dropout. sample: ids that estimate the loss. taught: the teacher's draws, (B, T, DRAWS). bits: by which
    scheduled sampling replaces inputs, (B, T).
    """

    masks: DropoutMasks | None = None
    sample: VocabSample | None = None
    taught: Tensor | None = None
    bits: U64 | None = None


class Objective(nn.Module):
    """The sum of -log p over the targets of a micro-batch, and the sum that training makes small.

    hidden: the model's `hidden`, perhaps compiled.
    """

    def __init__(self, model: GPT, hidden: Callable[..., Tensor], compute: Compute, train: TrainSection) -> None:
        super().__init__()
        self.model, self._hidden, self._compute, self._train = model, hidden, compute, train

    def forward(self, x: Tensor, y: Tensor, drawn: Randomness, replaced_fraction: float = 0.0) -> tuple[Tensor, Tensor]:
        """Return both sums, in nats, at least fp32: (B, T), (B, T) int64 -> scalar, scalar.

        replaced_fraction: of the inputs, by scheduled sampling.
        """
        if drawn.bits is not None:
            x = mixed_inputs(self.model, x, replaced_fraction, drawn.bits, self._compute)
        with self._compute.autocast():
            hidden = self._hidden(x, dropout_masks=drawn.masks)  # (B, T, C)
            if self._train.temperature != 1.0:
                hidden = hidden / self._train.temperature  # and so the logits, which are its products with the head
            weight, multiple = self.model.head.weight, self._compute.size_multiple
            if drawn.taught is not None:
                return taught_nll_sum(logits_of(hidden, weight, multiple), y, drawn.taught, self._train.ngram_teacher)
            if drawn.sample is not None:
                nll = sampled_nll_sum(hidden, weight, y, drawn.sample)
            else:
                nll = nll_sum_of_states(hidden, weight, y, multiple)
        return nll, nll


def taught_nll_sum(logits: Tensor, targets: Tensor, taught: Tensor, weight: float) -> tuple[Tensor, Tensor]:
    """Return the loss as `nll_sum` does, and with the weight of the teacher's draws: (B, T, V), (B, T), (B, T, DRAWS).

    The second is the mean of both cross entropies, (1 - weight) with the text and `weight` with the teacher.
    """
    log_p = F.log_softmax(logits, dim=-1, dtype=torch.promote_types(logits.dtype, torch.float32))
    of_text = -log_p.gather(-1, targets[..., None]).sum()
    of_teacher = -log_p.gather(-1, taught).sum() / DRAWS
    return of_text, (1 - weight) * of_text + weight * of_teacher
