"""Which device, which arithmetic, how many threads: rules of hardware and shape, never a measurement.

Equal commands on equal machines must give equal runs, so nothing here is timed.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

import torch

from gptlite.compute.allocator import keep_pages
from gptlite.compute.threads import choose_threads
from gptlite.config.schema import RunSection
from gptlite.errors import ConfigError

LONGEST_BATCHED = 256  # tokens; beyond, the (T, T) weights outgrow the caches


@dataclass(frozen=True)
class Compute:
    """What `auto` became, and why (one line per rule, for the terminal and run.json)."""

    device: torch.device
    precision: str  # fp32 | bf16: the type of matrix products; parameters are always fp32
    attention: str  # plain | batched | fused
    threads: int
    reasons: tuple[str, ...] = ()

    def autocast(self) -> AbstractContextManager[object]:
        """Matrix products in the chosen precision; norms, softmax and the loss stay in fp32."""
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.precision == "bf16")

    def values(self) -> dict[str, object]:
        """As keys of the config's `run` section."""
        return {
            "run.device": self.device.type,
            "run.precision": self.precision,
            "run.attention": self.attention,
            "run.threads": self.threads,
        }


def computes_in_bf16(device: torch.device) -> bool:
    """Whether the hardware multiplies bf16 itself; emulation is many times slower than fp32."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    if device.type == "cpu":
        capability = torch.backends.cpu.get_cpu_capability()
        return capability.startswith("AVX512") and bool(
            torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
        )
    return False


def _device(wanted: str, local_rank: int) -> tuple[torch.device, str]:
    have = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if wanted == "auto":
        best = next(name for name in ("cuda", "mps", "cpu") if have[name])
        reason = f"device {best}: the first of cuda, mps, cpu that is there"
    elif have[wanted]:
        best, reason = wanted, f"device {wanted}: as asked"
    else:
        there = ", ".join(name for name, yes in have.items() if yes)
        raise ConfigError(f"run.device = {wanted}: torch finds no such device here; use one of auto, {there}")
    return torch.device(best, local_rank) if best == "cuda" else torch.device(best), reason


def _attention(wanted: str, device: torch.device, precision: str, block_size: int) -> tuple[str, str]:
    """Which of model.attention's paths. In fp32 they measured alike up to 256 tokens, and the fused kernel needs the
    least memory. A CPU's bf16 kernel is slow in the backward pass: with two products a sketch's step took 0.57 to 0.8
    of the time."""
    if wanted != "auto":
        return wanted, f"attention {wanted}: as asked"
    if device.type == "cpu" and precision == "bf16" and block_size <= LONGEST_BATCHED:
        return "batched", f"attention batched: bf16 on a CPU, block_size at most {LONGEST_BATCHED}"
    return "fused", "attention fused: the kernel that needs the least memory"


def resolve(run: RunSection, block_size: int, *, local_rank: int = 0, product: float = math.inf) -> Compute:
    """Replace every `auto` of the run section, for a model that looks at `block_size` tokens.

    product: operations of its larger matrix products, where it is trained.
    ConfigError where the device asked for is not there.
    """
    device, why_device = _device(run.device, local_rank)
    native = computes_in_bf16(device)
    if run.precision == "auto":
        precision = "bf16" if native else "fp32"
        why_precision = (
            f"precision {precision}: this {device.type} {'multiplies' if native else 'does not multiply'} bf16"
        )
    else:
        precision, why_precision = run.precision, f"precision {run.precision}: as asked"
    attention, why_attention = _attention(run.attention, device, precision, block_size)
    threads, why_threads = choose_threads(run.threads, product=product)
    reasons = (why_device, why_precision, why_attention, why_threads)
    return Compute(device, precision, attention, threads, reasons)


@contextmanager
def settings(compute: Compute, *, deterministic: bool) -> Iterator[None]:
    """Apply what torch keeps as global state, and put it back; memory that was used is kept for the process."""
    keep_pages()
    threads, before = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    torch.set_num_threads(compute.threads)
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS asks for it
        torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        if deterministic != before:  # the call loads torch's compiler, which takes more than a second
            torch.use_deterministic_algorithms(before)
        torch.set_num_threads(threads)
