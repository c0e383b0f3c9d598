"""What the figures were measured on. Run as a program it prints that as JSON, so that whoever asks loads no torch."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import resource
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


def cpu_model() -> str:
    """The processor as the system calls it."""
    if sys.platform == "darwin":
        asked = ["sysctl", "-n", "machdep.cpu.brand_string"]
        return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def commit() -> str | None:
    """The commit of these files, marked where they differ from it; None outside a repository."""
    describe = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=12"]
    asked = subprocess.run(describe, capture_output=True, text=True, check=False)
    return asked.stdout.strip() or None


def facts() -> dict[str, Any]:
    """The machine, the versions, the moment."""
    import torch

    from gptlite.compute.device import computes_in_bf16

    return {
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "multiplies_bf16": computes_in_bf16(torch.device("cpu")),
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "gptlite": importlib.metadata.version("gptlite"),
        "commit": commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


class Others:
    """How much of the processor went to other processes since this was made; ours are those that have ended by then."""

    def __init__(self) -> None:
        self._began_at, self._busy, self._ours = time.monotonic(), busy_seconds(), our_seconds()

    def share(self) -> float | None:
        """0 to 1; None where the system does not tell."""
        busy = busy_seconds()
        if busy is None or self._busy is None:
            return None
        theirs = (busy - self._busy) - (our_seconds() - self._ours)
        return max(0.0, theirs / (time.monotonic() - self._began_at) / (os.cpu_count() or 1))


def busy_seconds() -> float | None:
    """Core-seconds since the start of the system that were neither idle nor spent waiting for a disk."""
    stat = Path("/proc/stat")
    if not stat.exists():
        return None
    user, nice, system, _, _, irq, softirq, steal = map(int, stat.read_text(encoding="utf-8").split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def our_seconds() -> float:
    """Core-seconds of this process and of its children that have ended."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def ask() -> dict[str, Any]:
    """`facts`, from a process of its own."""
    done = subprocess.run([sys.executable, "-m", __name__], stdout=subprocess.PIPE, check=True)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


if __name__ == "__main__":
    print(json.dumps(facts()))
