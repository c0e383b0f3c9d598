"""OpenMP, which runs torch's CPU operations on several threads. What it reads from the environment, it reads once,
while torch is loaded, so this file is used before that and imports no torch.

Threads that finish their part of an operation wait for the others. By default they spin for milliseconds, since a
thread that sleeps takes a while to wake. Beside a program that takes one of the cores that is a trap: the spinning
thread holds the core on which the last one would do its part. So threads spin briefly, and very briefly where other
programs run at the start: that costs a few per cent on an idle machine (docs/decisions.md; `scripts/bench busy`).
"""

from __future__ import annotations

import os
from collections.abc import Container, Mapping, MutableMapping
from pathlib import Path

from gptlite.errors import ConfigError

# libgomp (torch on Linux) counts turns of its waiting loop; libomp (torch on macOS) and Intel's runtime count ms.
ALONE = {"GOMP_SPINCOUNT": "10000", "KMP_BLOCKTIME": "1"}
BESIDE_OTHERS = {"GOMP_SPINCOUNT": "2000", "KMP_BLOCKTIME": "1"}
POLICY = "OMP_WAIT_POLICY"  # the same for all of them, where the user has an opinion
DYNAMIC = "OMP_DYNAMIC"


def others_run(stat: Path = Path("/proc/stat")) -> bool:
    """Whether other programs compute at this moment. False where the system does not say (macOS)."""
    try:
        lines = stat.read_text().splitlines()
    except OSError:
        return False
    running = next((int(line.split()[1]) for line in lines if line.startswith("procs_running ")), 1)
    return running > 1  # one is this process


def short_spin() -> Mapping[str, str]:
    """The settings for what the machine does at this moment."""
    return BESIDE_OTHERS if others_run() else ALONE


def set_short_spin(environment: MutableMapping[str, str], modules: Container[str]) -> None:
    """Let waiting threads spin only briefly. The user's own settings stay; once torch is loaded it is too late.

    Unlike the number of threads this changes no result, so it may depend on what else the machine does.

    environment: os.environ; modules: sys.modules.
    """
    if "torch" in modules or POLICY in environment:
        return
    for name, value in short_spin().items():
        environment.setdefault(name, value)


def waiting_reason(environment: Mapping[str, str] = os.environ) -> str:
    """How threads wait, and why: a line for run.json."""
    found = {name: environment[name] for name in (POLICY, *ALONE) if name in environment}
    words = ", ".join(f"{name}={value}" for name, value in found.items())
    if found in (ALONE, BESIDE_OTHERS):
        beside = " very" if found == BESIDE_OTHERS else ""
        return f"waiting {words}: threads spin{beside} briefly, so that other programs slow training down least"
    if found:
        return f"waiting {words}: set by the environment"
    return (
        "waiting default: torch was loaded before gptlite, so it could not be set; beside other programs training may "
        f"be many times slower (import gptlite first, or set GOMP_SPINCOUNT={BESIDE_OTHERS['GOMP_SPINCOUNT']} before "
        "Python starts)"
    )


def refuse_dynamic_threads(environment: Mapping[str, str] = os.environ) -> None:
    """ConfigError where OpenMP may take fewer threads than it is told, depending on what else the machine does.

    torch's bf16 products on AMX then give nan, and no run would repeat bit for bit.
    """
    value = environment.get(DYNAMIC, "")
    if value.strip().lower() in ("true", "1", "yes", "on"):
        raise ConfigError(
            f"{DYNAMIC} = {value}: with it the number of threads changes from operation to operation, and torch may "
            "compute nan; unset it"
        )
