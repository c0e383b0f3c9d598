"""The processes that share a run, as torchrun numbers and counts them in the environment; without it there is one."""

from __future__ import annotations

import os


def world_size() -> int:
    """Processes of this run, on all machines."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def local_world_size() -> int:
    """Those on this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def local_rank() -> int:
    """Which of this machine's GPUs is ours."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def is_main() -> bool:
    """Whether this process is the one that writes."""
    return os.environ.get("RANK", "0") == "0"
