"""How fast a device multiplies matrices: what the speed of a training is compared with."""

from __future__ import annotations

from time import perf_counter

import torch

from gptlite.compute.device import Compute

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
