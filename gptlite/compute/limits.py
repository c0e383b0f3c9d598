"""The threads and the memory that this process may use, and how OpenMP's threads wait for each other.

A container is often given a share of a large machine's time instead of some of its cores. The system stops threads
beyond that share in the middle of a step, and the others wait for them.

OpenMP, which runs torch's CPU operations on several threads, reads its environment variables when torch is loaded; this
module must run before that and imports no torch. Threads that have finished their part of an operation wait for the
others. By default they spin for milliseconds, which is harmful when another program uses one of the cores: the spinning
thread occupies the core that the last thread needs. We let threads spin briefly, and very briefly if other programs run
at the start. On an idle machine this costs a few per cent (docs/decisions.md; `scripts/bench busy`).
"""

from __future__ import annotations

import math
import os
from collections.abc import Container, Iterator, Mapping, MutableMapping
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
    lines = (line for group in _cgroups(root) for line in _lines(group / "memory.max"))
    limits = [int(line) for line in lines if line.isdecimal()]  # `max` stands for none
    return min([machine, *limits]) // local_world_size()


def _cpu_quotas(root: Path) -> Iterator[float]:
    """Yield the shares of processor time, in cores: of `150000 100000` 1.5; `max` stands for none."""
    for group in _cgroups(root):
        for line in _lines(group / "cpu.max"):
            quota, period = line.split()
            if quota.isdecimal():
                yield int(quota) / int(period)


def _cgroups(root: Path) -> Iterator[Path]:
    """Yield the folders with the limits of this process's cgroup and of those around it: of Linux's version 2.

    The system's file says `0::/user.slice/job`.
    """
    for line in _lines(root / "proc/self/cgroup"):
        hierarchy, _, group = line.split(":", 2)
        if hierarchy == "0":
            below = PurePosixPath(group.lstrip("/"))
            for path in (below, *below.parents):
                yield root / "sys/fs/cgroup" / path


def _lines(path: Path) -> list[str]:
    """Return the lines of a system file; [] if it is missing."""
    try:
        return path.read_text("utf-8", "replace").splitlines()
    except OSError:  # not this system, not this controller: nothing there limits us or tells of others
        return []


# libgomp (torch on Linux) counts iterations of its waiting loop; libomp (torch on macOS) and Intel's runtime count ms.
ALONE = {"GOMP_SPINCOUNT": "10000", "KMP_BLOCKTIME": "1"}
BUSY_MACHINE = {"GOMP_SPINCOUNT": "2000", "KMP_BLOCKTIME": "1"}


def short_spin(stat: Path = Path("/proc/stat")) -> Mapping[str, str]:
    """Return the settings for whether other programs are computing right now, which macOS does not say."""
    running = next((int(line.split()[1]) for line in _lines(stat) if line.startswith("procs_running ")), 1)
    return BUSY_MACHINE if running > 1 else ALONE  # one is this process


def set_short_spin(environment: MutableMapping[str, str], modules: Container[str]) -> None:
    """Let waiting threads spin only briefly, and keep their number. Once torch is loaded it is too late.

    Unlike the number of threads the spin changes no result, so it may depend on the load of the machine, and the user's
    own settings win.

    environment: os.environ; modules: sys.modules.
    """
    if "torch" in modules:
        return
    # Where it is true, the number may change between operations: torch's bf16 products on AMX gave nan.
    environment.pop("OMP_DYNAMIC", None)
    if "OMP_WAIT_POLICY" not in environment:  # which all of them understand
        environment.update({**short_spin(), **environment})
