"""The hardware that there is, where and how a model is computed with its settings of torch, and the memory held."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from gptlite.compute.choice import DEVICES, Choice
from gptlite.compute.limits import available_threads, machine_memory
from gptlite.compute.processes import local_rank
from gptlite.config.schema import RunSection

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h


def compile_obstacle(device: str) -> str:
    """Return why torch cannot compile for a device, found out by compiling one line; empty where it can."""
    try:
        torch.compile(lambda x: 2 * x)(torch.ones(2, device=device))
    except RuntimeError as error:  # all errors of torch's compiler derive from it
        return f"torch cannot compile here ({str(error).splitlines()[0]})"
    return ""


@dataclass(frozen=True)
class Hardware:
    """The hardware, as far as choices depend on it."""

    devices: tuple[str, ...]  # those of DEVICES that torch finds
    multiply_bf16: frozenset[str]  # those that multiply bf16 in hardware
    available_threads: Callable[[], Choice] = available_threads  # the most that `run.threads: auto` may take
    compile_obstacle: Callable[[str], str] = compile_obstacle  # why torch cannot compile for a device; "" if it can

    @classmethod
    def detect(cls) -> Hardware:
        """Look at this machine as this process sees it."""
        available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
        devices = tuple(name for name in DEVICES if available[name])
        in_bf16 = frozenset(name for name in devices if computes_in_bf16(torch_device(name)))
        return cls(devices, in_bf16)


@dataclass(frozen=True)
class Compute:
    """Where and how a model is computed, once every `auto` is resolved."""

    device: torch.device
    precision: str  # fp32 | bf16 | fp16: the type of matrix products; parameters are always fp32
    attention: str  # plain | batched | fused
    threads: int

    @classmethod
    def of(cls, run: RunSection) -> Compute:
        """Read the run section of a resolved config."""
        assert isinstance(run.threads, int), "resolve it first"
        return cls(torch_device(run.device), run.precision, run.attention, run.threads)

    @property
    def half(self) -> torch.dtype:
        """The type of matrix products where it is not fp32."""
        return torch.float16 if self.precision == "fp16" else torch.bfloat16

    @property
    def updates_ahead(self) -> int:
        """How many updates the device is given before the numbers of an earlier one are read."""
        return 2 if self.device.type == "cuda" else 0

    @property
    def size_multiple(self) -> int:
        """Of which the sizes of a matrix product are to be, for its speed."""
        return 64 if self.device.type == "cuda" else 1

    def autocast(self) -> AbstractContextManager[object]:
        """Compute matrix products in the chosen precision; norms, softmax and the loss stay in fp32."""
        return torch.autocast(self.device.type, dtype=self.half, enabled=self.precision != "fp32")


def send(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor to the device; to a GPU from pinned memory, so that nothing waits for what it still computes."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


class Arriving:
    """Numbers on their way from the device. Later work may be started before they are read."""

    def __init__(self, numbers: Tensor) -> None:
        """numbers: (n,) on the device."""
        self._event = torch.cuda.Event() if numbers.is_cuda else None  # type: ignore[no-untyped-call]
        self._numbers = numbers.to("cpu", non_blocking=numbers.is_cuda)
        if self._event is not None:
            self._event.record()

    def read(self) -> list[float]:
        """Return them, once they have arrived."""
        if self._event is not None:
            self._event.synchronize()
        numbers: list[float] = self._numbers.tolist()
        return numbers


def torch_device(name: str) -> torch.device:
    """Return the device of this name; of several GPUs the one of this process."""
    return torch.device(name, local_rank()) if name == "cuda" else torch.device(name)


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


def resident_bytes() -> int:
    """Return the bytes that this process holds in memory; outside Linux, the most it has held so far."""
    statm = Path("/proc/self/statm")
    if statm.is_file():
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return peak_bytes(torch.device("cpu"))


def peak_bytes(device: torch.device) -> int:
    """Return the most bytes held at a time so far: on a GPU by tensors, else by the process."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    status = Path("/proc/self/status")
    if status.is_file():  # where ru_maxrss begins with what the process held that started this one
        return 1024 * int(re.findall(r"VmHWM:\s*(\d+)", status.read_text())[0])
    import resource  # there is none on Windows, where nothing trains

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def memory_of(device: torch.device) -> int:
    """Return the bytes for this process: all of a GPU, or its part of the machine."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return machine_memory()


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


def processor(device: torch.device) -> str:
    """Name the kind of processor that computes, as far as it decides how sums are rounded."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}"
