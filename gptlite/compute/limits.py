"""The threads and the memory that this process may use, by affinity and by its control groups.

A container is often given a share of a large machine's time instead of some of its cores. The system stops threads
beyond that share in the middle of a step, and the others wait for them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from gptlite.compute.choice import Choice
from gptlite.compute.processes import local_world_size, read_number

VARIABLE = "GPTLITE_THREADS"


def available_threads(root: Path = Path("/")) -> Choice:
    """Return the most threads that `run.threads: auto` may take. `root`: where the system's files lie.

    GPTLITE_THREADS lowers it. Raise ConfigError if that is no positive integer.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads, reason = cores, "the cores this process may use"
    quota = min(_cpu_quotas(root), default=math.inf)
    if quota <= cores - 1:  # a part of a core is worth a thread
        threads, reason = max(1, math.ceil(quota)), f"the cgroup allows {quota:.4g} cores"
    if (processes := local_world_size()) > 1:
        threads, reason = max(1, threads // processes), f"{reason}, shared by {processes} processes"
    cap = read_number(VARIABLE, threads, 1, "Set it to a positive integer or unset it.")
    return Choice(cap, f"{VARIABLE} allows no more") if cap < threads else Choice(threads, reason)


def machine_memory(root: Path = Path("/")) -> int:
    """Return the bytes of the machine, or of what this process's cgroups allow, a part for each process of the run."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    files = (group / name for group in _cgroups(root, "memory") for name in ("memory.max", "memory.limit_in_bytes"))
    # `max` stands for none in version 2, a number beyond all memory in version 1.
    limits = [int(line) for path in files for line in _lines(path) if line.isdecimal()]
    return min([machine, *limits]) // local_world_size()


def _cpu_quotas(root: Path) -> Iterator[float]:
    """Yield the shares of processor time, in cores: `150000 100000` in version 2's file, with `max` for none."""
    names = ("cpu.max", "cpu.cfs_quota_us", "cpu.cfs_period_us")
    for group in _cgroups(root, "cpu"):
        words = " ".join(line for name in names for line in _lines(group / name)).split()
        if len(words) == 2 and all(word.isdecimal() for word in words) and int(words[1]):  # -1: none in version 1
            yield int(words[0]) / int(words[1])


def _cgroups(root: Path, controller: str) -> Iterator[Path]:
    """Yield the folders with the limits of a controller ("cpu", "memory"): of this process's group and those around it.

    Both versions of Linux; nothing elsewhere.
    """
    groups: dict[str, PurePosixPath] = {}  # by v1's controllers; the one tree of v2 names none
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, group = line.split(":", 2)
        groups |= dict.fromkeys(controllers.split(","), PurePosixPath(group))
    for line in _lines(root / "proc/self/mountinfo"):
        mount, _, filesystem = line.partition(" - ")
        kind, *_, options = filesystem.split()
        if kind == "cgroup2" or (kind == "cgroup" and controller in options.split(",")):
            top, folder = mount.split()[3:5]
            mine = groups.get("" if kind == "cgroup2" else controller, PurePosixPath(top))
            below = mine.relative_to(top) if mine.is_relative_to(top) else PurePosixPath()
            for path in (below, *below.parents):
                yield root / folder.lstrip("/") / path


def _lines(path: Path) -> list[str]:
    """Return the lines of a system file; [] if it is missing."""
    try:
        return path.read_text("utf-8", "replace").splitlines()
    except OSError:  # not this system, not this controller: nothing there limits us
        return []
