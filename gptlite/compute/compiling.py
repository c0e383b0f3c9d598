"""Whether the model is compiled first (torch.compile): a slow start, then perhaps faster steps."""

from __future__ import annotations

from typing import Literal

import torch

from gptlite.errors import ConfigError


def choose_compile(wanted: bool | Literal["auto"], device: torch.device) -> tuple[bool, str]:
    """What `run.compile` becomes, and why. ConfigError where it is true and torch cannot compile on this machine."""
    if wanted == "auto" and device.type == "cuda":
        obstacle = why_not(device)
        return (
            not obstacle,
            f"compile false: {obstacle}" if obstacle else "compile true: torch can compile for this GPU",
        )
    if wanted == "auto":
        # On CPUs a compiled step took 0.9 to 1.4 times as long as a plain one, after a minute of compiling.
        return False, f"compile false: on {device.type} it seldom pays for its slow start"
    if wanted and (obstacle := why_not(device)):
        raise ConfigError(
            f"run.compile = true: {obstacle}; install what is missing (a C++ compiler and Python's headers, on a GPU "
            "Triton), or set run.compile to auto"
        )
    return wanted, f"compile {str(wanted).lower()}: as asked"


def why_not(device: torch.device) -> str:
    """Why torch cannot compile for `device`, found out by compiling one line; empty where it can."""
    if device.type == "cuda" and torch.cuda.get_device_capability(device) < (7, 0):
        return "Triton needs a GPU of compute capability 7.0 or more"
    try:
        torch.compile(lambda x: 2 * x)(torch.ones(2, device=device))
    except RuntimeError as error:  # torch has many kinds, all of them this one
        return f"torch cannot compile here ({str(error).splitlines()[0]})"
    return ""
