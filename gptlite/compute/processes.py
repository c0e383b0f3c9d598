"""The processes that share a run, as torchrun numbers and counts them in the environment; without it there is one."""

from __future__ import annotations

import os

from gptlite.errors import ConfigError


def world_size() -> int:
    """Processes of this run, on all machines."""
    return _number("WORLD_SIZE", 1)


def local_world_size() -> int:
    """Those on this machine."""
    return _number("LOCAL_WORLD_SIZE", 1)


def local_rank() -> int:
    """Which of this machine's GPUs is ours."""
    return _number("LOCAL_RANK", 0)


def rank() -> int:
    """The number of this process among all."""
    return 0 if world_size() == 1 else _number("RANK", 0)


def is_main() -> bool:
    """Whether this process is the one that writes."""
    return rank() == 0


def slurm_tasks() -> int:
    """Tasks that Slurm started and that know nothing of each other; 1 without Slurm, or where torchrun started them."""
    return _number("SLURM_STEP_NUM_TASKS", 1) if world_size() == 1 and "SLURM_PROCID" in os.environ else 1


def _number(name: str, least: int) -> int:
    """A variable of the environment, which is `least` where it is not set. ConfigError for what torchrun never sets."""
    text = os.environ.get(name, str(least))
    try:
        number = int(text)
    except ValueError:
        number = -1
    if number < least:
        raise ConfigError(f"the environment variable is {text[:40]!r}, and torchrun sets a number. Unset it.", name)
    return number
