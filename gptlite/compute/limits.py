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
from gptlite.errors import ConfigError

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
    except OSError:  # not this system, not this controller: nothing there limits us or tells of others
        return []


# libgomp (torch on Linux) counts iterations of its waiting loop; libomp (torch on macOS) and Intel's runtime count ms.
ALONE = {"GOMP_SPINCOUNT": "10000", "KMP_BLOCKTIME": "1"}
BUSY_MACHINE = {"GOMP_SPINCOUNT": "2000", "KMP_BLOCKTIME": "1"}
POLICY = "OMP_WAIT_POLICY"  # understood by all of them; a user may have set it
DYNAMIC = "OMP_DYNAMIC"


def other_programs_run(stat: Path = Path("/proc/stat")) -> bool:
    """Return whether other programs are computing right now. False where the system does not say (macOS)."""
    running = next((int(line.split()[1]) for line in _lines(stat) if line.startswith("procs_running ")), 1)
    return running > 1  # one is this process


def short_spin() -> Mapping[str, str]:
    """Return the settings for the current load of the machine."""
    return BUSY_MACHINE if other_programs_run() else ALONE


def set_short_spin(environment: MutableMapping[str, str], modules: Container[str]) -> None:
    """Let waiting threads spin only briefly. The user's own settings win; once torch is loaded it is too late.

    Unlike the number of threads this changes no result, so it may depend on the load of the machine.

    environment: os.environ; modules: sys.modules.
    """
    if "torch" not in modules and POLICY not in environment:
        environment.update({**short_spin(), **environment})


def describe_spin(environment: Mapping[str, str] = os.environ) -> Choice:
    """Describe how threads wait and why, for run.json."""
    found = {name: environment[name] for name in (POLICY, *ALONE) if name in environment}
    if not found:
        return Choice(
            "default", "torch was imported before gptlite.load or gptlite.train was used, too late to change it"
        )
    by_us = found in (ALONE, BUSY_MACHINE)
    reason = "a short spin, so that other programs slow training down less" if by_us else "set by the environment"
    return Choice(", ".join(f"{name}={setting}" for name, setting in found.items()), reason)


def refuse_dynamic_threads() -> None:
    """Raise ConfigError if OpenMP may use fewer threads than it is told, depending on the load of the machine.

    torch's bf16 products on AMX then give nan, and no run would repeat bit for bit.
    """
    value = os.environ.get(DYNAMIC, "")
    if value.strip().lower() in ("true", "1", "yes", "on"):
        raise ConfigError(
            f"the environment variable is {value!r}, which lets the number of threads change from operation to "
            "operation, and torch may compute nan. Unset it.",
            DYNAMIC,
        )
