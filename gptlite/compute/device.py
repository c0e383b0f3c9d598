"""Device, precision, attention path and threads: how `auto` is resolved, and the settings of torch that follow.

The choices depend on the hardware and the shapes of the model, never on a measurement: equal commands on equal machines
must give equal runs.
"""

from __future__ import annotations

import ctypes
import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

import torch

from gptlite.compute.choice import GIVEN, Choice
from gptlite.compute.compiling import compile_obstacle
from gptlite.compute.openmp import refuse_dynamic_threads
from gptlite.compute.threads import available_threads, choose_threads
from gptlite.config.schema import RunSection
from gptlite.errors import ConfigError

DEVICES = ("cuda", "mps", "cpu")  # the fastest first
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
LONGEST_BATCHED = 512  # tokens; with 1,024 the fused kernel measured alike, and it needs less memory


@dataclass(frozen=True)
class Hardware:
    """The hardware, as far as choices depend on it."""

    devices: tuple[str, ...]  # those of DEVICES that torch finds
    multiply_bf16: frozenset[str]  # those that multiply bf16 in hardware
    available_threads: Callable[[], Choice] = available_threads  # the most that `run.threads: auto` may take
    compile_obstacle: Callable[[str], str] = compile_obstacle  # why torch cannot compile for a device; "" if it can

    @classmethod
    def detect(cls, local_rank: int = 0) -> Hardware:
        """Look at this machine as this process sees it. Raise ConfigError where OpenMP may use fewer threads."""
        refuse_dynamic_threads()
        available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
        devices = tuple(name for name in DEVICES if available[name])
        in_bf16 = frozenset(name for name in devices if computes_in_bf16(torch_device(name, local_rank)))
        return cls(devices, in_bf16)


@dataclass(frozen=True)
class Compute:
    """Where and how a model is computed, once every `auto` is resolved."""

    device: torch.device
    precision: str  # fp32 | bf16: the type of matrix products; parameters are always fp32
    attention: str  # plain | batched | fused
    threads: int

    @classmethod
    def of(cls, run: RunSection, local_rank: int = 0) -> Compute:
        """Read the run section of a resolved config."""
        assert isinstance(run.threads, int), "resolve it first"
        return cls(torch_device(run.device, local_rank), run.precision, run.attention, run.threads)

    def autocast(self) -> AbstractContextManager[object]:
        """Compute matrix products in the chosen precision; norms, softmax and the loss stay in fp32."""
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.precision == "bf16")


def torch_device(name: str, local_rank: int = 0) -> torch.device:
    """Return the device of this name; of several GPUs the one of this process."""
    return torch.device(name, local_rank) if name == "cuda" else torch.device(name)


def computes_in_bf16(device: torch.device) -> bool:
    """Return whether the hardware multiplies bf16. Emulation is many times slower than fp32."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    if device.type == "cpu":
        capability = torch.backends.cpu.get_cpu_capability()
        return capability.startswith("AVX512") and bool(
            torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
        )
    return False


def choose_compute(
    run: RunSection, block_size: int, hardware: Hardware, *, largest_product: float = math.inf
) -> dict[str, Choice]:
    """The keys of the run section that may be `auto`, by full name, each with its value and reason.

    largest_product: operations of the model's larger matrix products, where it is trained.
    ConfigError where the device is not available.
    """
    device = choose_device(run.device, hardware)
    precision = choose_precision(run.precision, device.value, hardware)
    attention = choose_attention(run.attention, device.value, precision.value, block_size)
    threads = choose_threads(run.threads, hardware.available_threads, largest_product=largest_product)
    return {"run.device": device, "run.precision": precision, "run.attention": attention, "run.threads": threads}


def choose_device(wanted: str, hardware: Hardware) -> Choice:
    """The fastest device that torch finds. ConfigError where the one asked for is not among them."""
    if wanted == "auto":
        return Choice(hardware.devices[0], f"the first of {', '.join(DEVICES)} that torch finds")
    if wanted not in hardware.devices:
        there = ", ".join(hardware.devices)
        raise ConfigError(
            f"run.device is {wanted}, and torch finds no such device here. Use run.device=auto, or one of {there}."
        )
    return Choice(wanted, GIVEN)


def choose_precision(wanted: str, device: str, hardware: Hardware) -> Choice:
    """bf16 where the hardware multiplies it."""
    if wanted != "auto":
        return Choice(wanted, GIVEN)
    if device in hardware.multiply_bf16:
        return Choice("bf16", f"this {device} multiplies bf16")
    return Choice("fp32", f"this {device} does not multiply bf16")


def choose_attention(wanted: str, device: str, precision: str, block_size: int) -> Choice:
    """Which of the paths in model/attention.py.

    In fp32 they measured alike up to 256 tokens, and the fused kernel needs the least memory. A CPU's bf16 kernel is
    slow in the backward pass: up to 512 tokens, a step with two batched products took 0.57 to 0.8 of the time.
    """
    if wanted != "auto":
        return Choice(wanted, GIVEN)
    if device == "cpu" and precision == "bf16" and block_size <= LONGEST_BATCHED:
        return Choice("batched", f"faster in bf16 on a CPU up to a block_size of {LONGEST_BATCHED}")
    return Choice("fused", "the kernel that needs the least memory")


def resolve_compute(run: RunSection, block_size: int) -> Compute:
    """Resolve a run section on this machine, for a model of this context length."""
    choices = choose_compute(run, block_size, Hardware.detect())
    values = {key.removeprefix("run."): choice.value for key, choice in choices.items()}
    return Compute.of(run.model_copy(update=values))


@contextmanager
def settings(compute: Compute, *, deterministic: bool) -> Iterator[None]:
    """Apply what torch keeps as global state, and restore it afterwards. Freed memory stays with the process."""
    keep_freed_memory()
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


def keep_freed_memory() -> None:
    """Let glibc keep memory, once used; elsewhere do nothing. It changes speed and peak memory, never a result.

    glibc returns blocks above its mmap threshold at once, so each forward pass asks for fresh pages, and the system
    zeroes them one by one: a third of a step of a small model with a large vocabulary. Its own threshold stops growing
    at 32 MiB; set from inside the process there is no such limit.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None  # musl has none
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, 2**31 - 1)
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
