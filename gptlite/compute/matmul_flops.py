"""How fast a device multiplies matrices: what the speed of a training is compared with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from time import perf_counter

import torch

from gptlite.compute.device import Compute, computes_in_bf16

CPU_SIDE, GPU_SIDE = 512, 4096  # of the matrices
SECONDS = 0.03  # of trying: the best of them counts, since others may be at work


def matrix_product_flops(compute: Compute) -> float:
    """Operations a second of the best of several products of square matrices, in the precision of the model."""
    side = CPU_SIDE if compute.device.type == "cpu" else GPU_SIDE
    dtype = torch.bfloat16 if compute.precision == "bf16" else torch.float32
    a = torch.ones(side, side, dtype=dtype, device=compute.device)
    product = torch.empty_like(a)
    fastest, began_at = float("inf"), perf_counter()
    while perf_counter() - began_at < SECONDS or fastest == float("inf"):
        started_at = perf_counter()
        torch.mm(a, a, out=product)
        product[0, 0].item()  # a GPU answers before it is done
        fastest = min(fastest, perf_counter() - started_at)
    return 2 * side**3 / fastest


def is_emulated(compute: Compute) -> bool:
    """Whether the hardware does not multiply in the precision of the model, so that torch converts back and forth."""
    return compute.precision == "bf16" and not computes_in_bf16(compute.device)


def slow_precision(compute: Compute) -> Iterator[str]:
    """A warning, with both speeds, before training in a precision that the hardware does not have."""
    if not is_emulated(compute):
        return
    bf16, fp32 = (matrix_product_flops(replace(compute, precision=each)) / 1e9 for each in ("bf16", "fp32"))
    yield (
        f"warning: run.precision = bf16: this {compute.device.type} does not multiply bf16; it reaches {bf16:.3g} "
        f"GFLOP/s, in fp32 {fp32:.3g}; a new run with run.precision fp32 is faster"
    )
