"""The speed at which this machine trains, from one short timing, for `--minutes`."""

from __future__ import annotations

import math
import os
import re
import statistics
from time import perf_counter

import torch

from gptlite.compute.choice import Choice
from gptlite.compute.device import Hardware, settings
from gptlite.compute.rendezvous import gather
from gptlite.config.schema import ModelSection, RunSection
from gptlite.errors import ConfigError
from gptlite.model.gpt import GPT, nll_sum
from gptlite.model.sizes import update_flops
from gptlite.planning.auto import choose_device, resolve_compute
from gptlite.planning.choose_sizes import SPEED_VARIABLE

# What a CPU and a GPU train in minutes, and the rows of a batch.
CPU_REFERENCE = ModelSection(n_layer=4, n_head=4, n_embd=128, block_size=64), 16
GPU_REFERENCE = ModelSection(n_layer=6, n_head=6, n_embd=384, block_size=256), 64
VOCAB_SIZE = 256
WARM_UP, TIMED = 3, 8  # passes, a second or so


def find_speed(run: RunSection) -> Choice:
    """The speed class of this machine: GFLOP/s in training, rounded to a power of two so that it hardly ever changes.

    GPTLITE_SPEED sets it without a timing; ConfigError if it is no positive number. Several processes measure at the
    same time, as they will train, and each learns the speed of all together.
    """
    given = os.environ.get(SPEED_VARIABLE)
    if given:
        return Choice(read_speed(given), f"{SPEED_VARIABLE} says so")
    measured = sum(float(speed) for speed in gather(repr(measure_speed(run))))
    return Choice(speed_class(measured), f"measured {measured:.0f} GFLOP/s")


def read_speed(text: str) -> int:
    """The value of GPTLITE_SPEED."""
    if not re.fullmatch("0*[1-9][0-9]{0,6}", text):
        raise ConfigError(
            f"the environment variable is {text[:40]!r}. Set it to GFLOP/s as a whole number, such as 64, or unset it.",
            SPEED_VARIABLE,
        )
    return int(text)


def speed_class(gflops: float) -> int:
    """The power of two that is nearest on a logarithmic scale, at least 1.

    >>> speed_class(68.0), speed_class(95.0)
    (64, 128)
    """
    return 1 << max(0, round(math.log2(gflops)))


def measure_speed(run: RunSection) -> float:
    """GFLOP/s of the forward and backward pass of a small model, with the device, precision and threads of a run."""
    device = choose_device(run.device, Hardware.detect()).value
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
    return update_flops(reference, VOCAB_SIZE, idx.numel()) / statistics.median(times) / 1e9
