"""How much memory this process holds, and how much there is."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch


def resident_bytes() -> int:
    """What this process holds in memory now; outside Linux, the most it has held so far."""
    statm = Path("/proc/self/statm")
    if statm.is_file():
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return most_resident_bytes()


def most_resident_bytes() -> int:
    """The most that this process has held in memory so far."""
    import resource  # there is none on Windows, where nothing trains

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def peak_bytes(device: torch.device) -> int:
    """The most that was held at a time so far: on a GPU by tensors, else by the process."""
    return int(torch.cuda.max_memory_allocated(device)) if device.type == "cuda" else most_resident_bytes()


def memory_of(device: torch.device) -> int:
    """All memory of a device, or of the machine where the device shares it: bytes."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
