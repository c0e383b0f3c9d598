"""How fast training goes and how much memory it takes: figures of the machine, no part of the result."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from gptlite.compute.device import Compute
from gptlite.compute.distributed import Dist
from gptlite.compute.memory import peak_bytes
from gptlite.compute.peak import matrix_product_flops
from gptlite.model.gpt import GPT
from gptlite.training.optim import update_flops


@dataclass(frozen=True)
class Meter:
    """flops_per_token: arithmetic of the model, forward and backward; peak: what all processes could do in a second."""

    flops_per_token: float
    peak: float
    device: torch.device

    @classmethod
    def of(cls, model: GPT, compute: Compute, dist: Dist) -> Meter:
        """The peak is measured here: a moment of multiplying."""
        return cls(update_flops(model, 1), matrix_product_flops(compute) * dist.world_size, compute.device)

    def read(self, tokens: int, seconds: float) -> dict[str, float]:
        """After training on so many tokens in so many seconds. share_of_peak: 1 is a training that does nothing but
        multiply matrices."""
        tokens_per_second = tokens / seconds
        return {
            "tokens_per_second": tokens_per_second,
            "share_of_peak": tokens_per_second * self.flops_per_token / self.peak,
            "peak_mib": peak_bytes(self.device) / 2**20,
        }
