"""Whether the model is compiled (torch.compile): a slow start, then perhaps faster steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch

from gptlite.compute.choice import GIVEN, Choice
from gptlite.errors import ConfigError


def choose_compile(wanted: bool | Literal["auto"], device: str, obstacle: Callable[[str], str]) -> Choice:
    """True on a GPU for which torch can compile. ConfigError where `run.compile` is true and torch cannot.

    obstacle: why torch cannot compile for a device; empty where it can.
    """
    if wanted is False:
        return Choice(False, GIVEN)
    if wanted == "auto" and device != "cuda":
        # On CPUs a compiled step took 0.9 to 1.4 times as long as a plain one, after a minute of compiling.
        return Choice(False, f"on {device} compiling seldom pays for its slow start")
    problem = obstacle(device)
    if wanted is True and problem:
        raise ConfigError(
            f"run.compile is true, but {problem}. Install what is missing (a C++ compiler and Python's headers, on a "
            "GPU Triton), or set run.compile to auto."
        )
    return Choice(not problem, GIVEN if wanted is True else problem or "torch can compile for this GPU")


def compile_obstacle(device: str) -> str:
    """Why torch cannot compile for a device, found out by compiling one line; empty where it can."""
    if device == "cuda" and torch.cuda.get_device_capability() < (7, 0):
        return "Triton needs a GPU of compute capability 7.0 or more"
    try:
        torch.compile(lambda x: 2 * x)(torch.ones(2, device=device))
    except RuntimeError as error:  # all errors of torch's compiler derive from it
        return f"torch cannot compile here ({str(error).splitlines()[0]})"
    return ""
