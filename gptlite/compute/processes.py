"""The processes that share a run, as torchrun numbers and counts them in the environment; without it there is one."""

from __future__ import annotations

import os
import re

from gptlite.errors import ConfigError


def world_size() -> int:
    """Return how many processes this run has, on all machines."""
    return _number("WORLD_SIZE", 1)


def local_world_size() -> int:
    """Return how many of them are on this machine."""
    return _number("LOCAL_WORLD_SIZE", 1)


def local_rank() -> int:
    """Return which of this machine's GPUs is ours."""
    return _number("LOCAL_RANK", 0)


def rank() -> int:
    """Return the number of this process among all."""
    return 0 if world_size() == 1 else _number("RANK", 0)


def is_main() -> bool:
    """Return whether this process is the one that writes."""
    return rank() == 0


def slurm_tasks() -> int:
    """Return how many tasks Slurm started without torchrun, which know nothing of each other; 1 without Slurm."""
    return _number("SLURM_STEP_NUM_TASKS", 1) if world_size() == 1 and "SLURM_PROCID" in os.environ else 1


def _number(name: str, least: int) -> int:
    """Read a variable that torchrun sets: `least` if unset."""
    return read_number(name, least, least, "torchrun sets a number. Unset it.")


def read_number(name: str, default: int, least: int, advice: str) -> int:
    """Return the value of an environment variable, `default` if unset. ConfigError unless it is `least` or more."""
    text = os.environ.get(name) or str(default)
    if not re.fullmatch("[0-9]{1,9}", text) or int(text) < least:
        raise ConfigError(f"the environment variable is {text[:40]!r}. {advice}", name)
    return int(text)
