"""Whether the model is compiled (torch.compile): a slow start, then perhaps faster steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch

from gptlite.compute.choice import GIVEN, Choice
from gptlite.errors import ConfigError

LONG_FLOPS, LONG_MINUTES = 1e16, 5.0  # of a training, from which on compiling pays for its slow start


def choose_compile(
    wanted: bool | Literal["auto"],
    device: str,
    obstacle: Callable[[str], str],
    *,
    flops: float,
    minutes: float | None,
) -> Choice:
    """True for a long training on a GPU for which torch can compile.

    ConfigError where `run.compile` is true and torch cannot.

    obstacle: why torch cannot compile for a device; empty where it can. flops: operations of the whole training; where
    minutes end it, they count instead.
    """
    if wanted is False:
        return Choice(False, GIVEN)
    if wanted == "auto" and device != "cuda":
        # On CPUs a compiled step took 0.9 to 1.4 times as long as a plain one, after a minute of compiling.
        return Choice(False, f"on {device} compiling seldom pays for its slow start")
    if wanted == "auto" and (flops < LONG_FLOPS if minutes is None else minutes < LONG_MINUTES):
        # On an H100 it took 20 to 28 s and saved 16 % of a step of 6 x 384, 28 % of 12 x 768.
        return Choice(False, "so short a training does not pay for the slow start of compiling")
    problem = obstacle(device)
    if wanted is True and problem:
        raise ConfigError(
            f"run.compile is true, but {problem}. Install what is missing (a C++ compiler and Python's headers, on a "
            "GPU Triton), or use run.compile=auto."
        )
    return Choice(not problem, GIVEN if wanted is True else problem or "torch can compile for this GPU")


def compile_obstacle(device: str) -> str:
    """Say why torch cannot compile for a device, after compiling one line; empty where it can."""
    if device == "cuda" and torch.cuda.get_device_capability() < (7, 0):
        return "Triton needs a GPU of compute capability 7.0 or more"
    try:
        torch.compile(lambda x: 2 * x)(torch.ones(2, device=device))
    except RuntimeError as error:  # all errors of torch's compiler derive from it
        return f"torch cannot compile here ({str(error).splitlines()[0]})"
    return ""
