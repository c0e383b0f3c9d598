"""Throughput: tokens per second, model FLOPs utilisation and peak memory. They describe the machine, not the result."""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter

import torch

from gptlite.compute.device import Compute, computes_in_bf16, peak_bytes
from gptlite.compute.distributed import Dist
from gptlite.config.schema import ModelSection
from gptlite.model.sizes import update_flops

CPU_SIDE, GPU_SIDE = 512, 4096  # of the matrices
SECONDS = 0.03  # of repeated products; the fastest counts, since other programs may be running


class Throughput:
    """Compares the model's arithmetic with the fastest matrix products, which are timed here."""

    def __init__(self, model: ModelSection, scored_ids: int, compute: Compute, dist: Dist) -> None:
        self._flops_per_token, self._device = update_flops(model, scored_ids, 1), compute.device
        self._peak = None if is_emulated(compute) else matmul_flops_per_second(compute) * dist.world_size

    def read(self, tokens: int, seconds: float) -> dict[str, float]:
        """Return the metrics of training on so many tokens in so many seconds.

        mfu is the model FLOPs utilisation: 1 would be training that does nothing but multiply matrices. It is
        left out where the precision is emulated, because the speed of one product says nothing about another's.
        """
        speed = tokens / seconds
        mfu = {} if self._peak is None else {"mfu": speed * self._flops_per_token / self._peak}
        return {"tokens_per_second": speed, **mfu, "peak_mib": peak_bytes(self._device) / 2**20}


def matmul_flops_per_second(compute: Compute) -> float:
    """Measure operations per second: the fastest of several products of square matrices, in the model's precision."""
    side = CPU_SIDE if compute.device.type == "cpu" else GPU_SIDE
    dtype = torch.bfloat16 if compute.precision == "bf16" else torch.float32
    a = torch.ones(side, side, dtype=dtype, device=compute.device)
    product = torch.empty_like(a)
    fastest, began_at = float("inf"), perf_counter()
    while perf_counter() - began_at < SECONDS or fastest == float("inf"):
        started_at = perf_counter()
        torch.mm(a, a, out=product)
        product[0, 0].item()  # a GPU returns before it has finished
        fastest = min(fastest, perf_counter() - started_at)
    return 2 * side**3 / fastest


def is_emulated(compute: Compute) -> bool:
    """Return whether the hardware does not multiply in the model's precision, so that torch converts back and forth."""
    return compute.precision == "bf16" and not computes_in_bf16(compute.device)


def warn_of_emulation(compute: Compute) -> Iterator[str]:
    """Yield a warning where the hardware does not have the model's precision."""
    if is_emulated(compute):
        yield (
            f"warning: run.precision is bf16, which this {compute.device.type} only emulates. Use run.precision=fp32 "
            "in a new run, which is faster."
        )
