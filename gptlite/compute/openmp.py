"""The waiting of OpenMP's threads for each other. OpenMP runs torch's CPU operations on several threads.

It reads its environment variables once, when torch is loaded; this module must run before that and imports no torch.

Threads that finish their part of an operation wait for the others. By default they spin for milliseconds, because a
sleeping thread takes a while to wake up. That is harmful when another program uses one of the cores: the spinning
thread occupies the core that the last thread needs. We let threads spin briefly, and very briefly if other programs
run at the start. On an idle machine this costs a few per cent (docs/decisions.md; `scripts/bench busy`).
"""

from __future__ import annotations

import os
from collections.abc import Container, Mapping, MutableMapping
from pathlib import Path

from gptlite.compute.choice import Choice
from gptlite.errors import ConfigError

# libgomp (torch on Linux) counts iterations of its waiting loop; libomp (torch on macOS) and Intel's runtime count ms.
ALONE = {"GOMP_SPINCOUNT": "10000", "KMP_BLOCKTIME": "1"}
BUSY_MACHINE = {"GOMP_SPINCOUNT": "2000", "KMP_BLOCKTIME": "1"}
POLICY = "OMP_WAIT_POLICY"  # understood by all of them; a user may have set it
DYNAMIC = "OMP_DYNAMIC"


def other_programs_run(stat: Path = Path("/proc/stat")) -> bool:
    """Return whether other programs are computing right now. False where the system does not say (macOS)."""
    try:
        lines = stat.read_text().splitlines()
    except OSError:
        return False
    running = next((int(line.split()[1]) for line in lines if line.startswith("procs_running ")), 1)
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
        return Choice("default", "torch was loaded before gptlite, too late to change it; import gptlite first")
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
