"""The number of threads of `run.threads: auto`: the cores that this process may use, by affinity and by its cgroups.

A container is often given a share of a large machine's time instead of some of its cores. The system stops threads
beyond that share in the middle of a step, and the others wait for them.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from gptlite.compute import cgroups
from gptlite.compute.choice import Choice
from gptlite.compute.openmp import refuse_dynamic_threads
from gptlite.compute.processes import local_world_size
from gptlite.errors import ConfigError

VARIABLE = "GPTLITE_THREADS"


def available_threads(root: Path = Path("/")) -> Choice:
    """Return the most threads that `run.threads: auto` may take. `root`: where the system's files lie.

    GPTLITE_THREADS lowers it. Raise ConfigError if that is no positive integer.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads, reason = cores, "the cores this process may use"
    quota = min(cgroup_quotas(root), default=math.inf)
    if quota <= cores - 1:  # a part of a core is worth a thread
        threads, reason = max(1, math.ceil(quota)), f"the cgroup allows {quota:.4g} cores"
    if (processes := local_world_size()) > 1:
        threads, reason = max(1, threads // processes), f"{reason}, shared by {processes} processes"
    cap = os.environ.get(VARIABLE)
    if cap:
        if not re.fullmatch("0*[1-9][0-9]{0,8}", cap):
            raise ConfigError(
                f"the environment variable is {cap!r}. Set it to a positive integer or unset it.", VARIABLE
            )
        if int(cap) < threads:
            threads, reason = int(cap), f"{VARIABLE} allows no more"
    return Choice(threads, reason)


def check_threads(wanted: int | Literal["auto"]) -> None:
    """Raise ConfigError where GPTLITE_THREADS, if it counts, or OMP_DYNAMIC has a value that cannot be used."""
    refuse_dynamic_threads()
    if wanted == "auto":
        available_threads()


def cgroup_quotas(root: Path) -> Iterator[float]:
    """Yield the shares of processor time, in cores, that this process's cgroups allow."""
    for group in cgroups.folders(root, "cpu"):
        yield from _quota(group)


def _quota(group: Path) -> Sequence[float]:
    """Read the limit of a group, if any: `150000 100000` in v2's file, which says `max` for none; -1 in v1's."""
    names = ("cpu.max", "cpu.cfs_quota_us", "cpu.cfs_period_us")
    words = " ".join(line for name in names for line in cgroups.lines(group / name)).split()
    if len(words) == 2 and all(word.isdecimal() for word in words) and int(words[1]):
        return [int(words[0]) / int(words[1])]
    return []
