"""How many threads `run.threads: auto` takes: the cores that this process has, by affinity and by its cgroups.

A container is often given a share of a large machine's time instead of some of its cores. Threads beyond that share
are stopped in the middle of a step, and the others wait for them.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from gptlite.compute import cgroups
from gptlite.compute.openmp import refuse_dynamic_threads
from gptlite.compute.processes import local_world_size
from gptlite.errors import ConfigError

VARIABLE = "GPTLITE_THREADS"
WORTH_SHARING = 10e6  # operations of a matrix product: a second thread gained nothing with 4e6, 12 % with 19e6


def choose_threads(
    wanted: int | Literal["auto"] = "auto", root: Path = Path("/"), *, product: float = math.inf
) -> tuple[int, str]:
    """What `run.threads` becomes, and why. `root` is the folder in which the system's files are looked for.

    product: operations of the model's larger matrix products. Of small ones threads would only wait for each other.
    GPTLITE_THREADS is the most that `auto` takes, in each process. ConfigError where it is no such number, or where
    OpenMP would not keep to the number of threads.
    """
    refuse_dynamic_threads()
    if wanted != "auto":
        return wanted, f"threads {wanted}: as asked"
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads, why = cores, "the cores this process may use"
    quota = min(cgroup_quotas(root), default=math.inf)
    if quota <= cores - 1:  # a part of a core is worth a thread
        threads, why = max(1, math.ceil(quota)), f"the cgroup allows {quota:.4g} cores"
    if (processes := local_world_size()) > 1:
        threads, why = max(1, threads // processes), f"{why}, shared by {processes} processes"
    cap = os.environ.get(VARIABLE)
    if cap:
        if not re.fullmatch("0*[1-9][0-9]{0,8}", cap):
            raise ConfigError(f"{VARIABLE} = {cap}: a whole number >= 1; correct it, or unset it")
        if int(cap) < threads:
            threads, why = int(cap), f"{VARIABLE} allows no more"
    if threads > 1 and product < WORTH_SHARING:
        threads, why = 1, f"products of {product / 1e6:.2g} million operations are too short to be shared"
    return threads, f"threads {threads}: {why}"


def cgroup_quotas(root: Path) -> Iterator[float]:
    """The shares of processor time, in cores, that this process's cgroups allow."""
    for group in cgroups.folders(root, "cpu"):
        yield from _quota(group)


def _quota(group: Path) -> Sequence[float]:
    """One number, where the group has a limit: `150000 100000` in v2's file, which says `max` for none; -1 in v1's."""
    names = ("cpu.max", "cpu.cfs_quota_us", "cpu.cfs_period_us")
    words = " ".join(line for name in names for line in cgroups.lines(group / name)).split()
    if len(words) == 2 and all(word.isdecimal() for word in words) and int(words[1]):
        return [int(words[0]) / int(words[1])]
    return []
