"""The speed of this machine: of a training with its peak memory, and in one short timing for `--minutes`."""

from __future__ import annotations

import json
import math
import os
import platform
from contextlib import suppress
from pathlib import Path
from time import perf_counter

import torch
from pydantic import TypeAdapter

from gptlite.compute.choice import Choice
from gptlite.compute.device import Compute, computes_in_bf16, peak_bytes, processor, settings
from gptlite.compute.distributed import Dist, gather
from gptlite.compute.processes import read_number, world_size
from gptlite.config.schema import ModelSection, RunSection
from gptlite.errors import StorageError
from gptlite.model.gpt import GPT
from gptlite.model.loss import nll_sum
from gptlite.model.sizes import update_flops
from gptlite.planning.auto import resolve_compute
from gptlite.planning.choose_sizes import SPEED_VARIABLE
from gptlite.storage.files import make_dirs, replace

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
    dtype = torch.float32 if compute.precision == "fp32" else compute.half
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
    if compute.precision == "fp16":
        return compute.device.type == "cpu"
    return compute.precision == "bf16" and not computes_in_bf16(compute.device)


# What a CPU and a GPU train in minutes, and the rows of a batch.
CPU_REFERENCE = ModelSection(n_layer=4, n_head=4, n_embd=128, block_size=64), 16
GPU_REFERENCE = ModelSection(n_layer=6, n_head=6, n_embd=384, block_size=256), 64
VOCAB_SIZE = 256
WARM_UP, TIMED = 3, 8  # passes, a second or so


def find_speed(run: RunSection) -> Choice:
    """Return the speed class of this machine: GFLOP/s in training, rounded to a power of two so that it rarely changes.

    GPTLITE_SPEED sets it without a timing; ConfigError if it is no positive number. Several processes measure at the
    same time, as they will train, and each learns the speed of all together. One process keeps the fastest timing in
    the user's cache folder, so that a busy machine gets the same sizes as an idle one.
    """
    if os.environ.get(SPEED_VARIABLE):
        advice = "Set it to GFLOP/s as a whole number, such as 64, or unset it."
        return Choice(read_number(SPEED_VARIABLE, 0, 1, advice), f"{SPEED_VARIABLE} says so")
    measured = sum(gather(measure_speed(run)))
    fastest = measured if world_size() > 1 else keep_fastest(measured, run)
    before = f", {fastest:.0f} before" if fastest > measured else ""
    return Choice(speed_class(fastest), f"measured {measured:.0f} GFLOP/s{before}")


def keep_fastest(gflops: float, run: RunSection) -> float:
    """Return the fastest speed that was ever measured on this machine in the same way, and keep it."""
    compute = resolve_compute(run, CPU_REFERENCE[0].block_size)
    where = f"{platform.node()}, {processor(compute.device)}, {compute.threads} threads"
    how = f"{where}, {compute.precision}, torch {torch.__version__}"
    path = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "gptlite", "speed.json")
    try:
        kept = TypeAdapter(dict[str, float]).validate_json(path.read_bytes())
    except (OSError, ValueError):  # none yet, or one that something else has damaged: it is only a cache
        kept = {}
    fastest = max(gflops, kept.get(how, 0.0))
    if kept.get(how) != fastest:
        with suppress(StorageError):  # a home that cannot be written to: the next run measures again
            make_dirs(path.parent)
            replace(path, json.dumps({**kept, how: fastest}, indent=2).encode())
    return fastest


def speed_class(gflops: float) -> int:
    """Return the power of two that is nearest on a logarithmic scale, at least 1.

    >>> speed_class(68.0), speed_class(95.0)
    (64, 128)
    """
    return 1 << max(0, round(math.log2(gflops)))


def measure_speed(run: RunSection) -> float:
    """GFLOP/s of the forward and backward pass of a small model, with the device, precision and threads of a run."""
    device = resolve_compute(run, CPU_REFERENCE[0].block_size).device.type
    reference, rows = GPU_REFERENCE if device == "cuda" else CPU_REFERENCE
    compute = resolve_compute(run, reference.block_size)
    model = GPT(reference, VOCAB_SIZE, attention=compute.attention, rng=torch.Generator().manual_seed(0))
    model.to(compute.device)
    idx = torch.zeros(rows, reference.block_size, dtype=torch.int64, device=compute.device)

    def seconds() -> float:
        started_at = perf_counter()
        with compute.autocast():
            nll_sum(model(idx), idx).backward()  # type: ignore[no-untyped-call]
        assert model.head.weight.grad is not None
        model.head.weight.grad.norm().item()  # a GPU has finished, too
        return perf_counter() - started_at

    with settings(compute, deterministic=False):
        times = [seconds() for _ in range(WARM_UP + TIMED)][WARM_UP:]
    return update_flops(reference, VOCAB_SIZE, idx.numel()) / min(times) / 1e9  # other programs only slow it down
