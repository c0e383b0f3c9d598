"""The memory that this process holds, and that of the machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from gptlite.compute import cgroups
from gptlite.compute.processes import local_world_size


def resident_bytes() -> int:
    """Return the bytes that this process holds in memory; outside Linux, the most it has held so far."""
    statm = Path("/proc/self/statm")
    if statm.is_file():
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return most_resident_bytes()


def most_resident_bytes() -> int:
    """Return the most bytes that this process has held in memory so far."""
    import resource  # there is none on Windows, where nothing trains

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def peak_bytes(device: torch.device) -> int:
    """Return the most bytes held at a time so far: on a GPU by tensors, else by the process."""
    return int(torch.cuda.max_memory_allocated(device)) if device.type == "cuda" else most_resident_bytes()


def memory_of(device: torch.device, root: Path = Path("/")) -> int:
    """Return the bytes for this process: all of a GPU; of the machine, or of what its cgroups allow, a part for each
    process of the run here. `root` is the folder in which the system's files are looked for."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([machine, *_cgroup_limits(root)]) // local_world_size()


def _cgroup_limits(root: Path) -> Iterator[int]:
    """Yield the limits in bytes. `max` stands for none in v2, a number beyond all memory in v1."""
    for group in cgroups.folders(root, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            yield from (int(line) for line in cgroups.lines(group / name) if line.isdecimal())
