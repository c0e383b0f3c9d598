"""What made a run, as run.json keeps it."""

from __future__ import annotations

import importlib.metadata
import platform
import subprocess
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gptlite import __version__
from gptlite.data.prepared import Prepared

if TYPE_CHECKING:
    from gptlite.training.trainer import Setup


def description(plan: Setup, prepared: Prepared) -> dict[str, Any]:
    """run.json: what made the run, so that it can be understood later."""
    packages = ("torch", "numpy", "tiktoken", "safetensors")
    versions = {name: importlib.metadata.version(name) for name in packages}
    return {
        "versions": {"gptlite": __version__, "python": platform.python_version(), **versions},
        "git_commit": git_commit(),
        "argv": sys.argv,
        "host": platform.node(),
        "device": plan.cfg.run.device,
        "world_size": plan.dist.world_size,
        "threads": plan.cfg.run.threads,
        "reasons": list(plan.reasons),
        "parameters": plan.model.n_parameters(),
        "prepared": str(prepared.path.absolute()),
        "data": prepared.manifest.fingerprint,
    }


def git_commit() -> str | None:
    """The commit of the folder we are called in; None where it is in no repository."""
    try:
        asked = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):  # no git: a fact about the machine, not a failure of the run
        return None
    return asked.stdout.strip() or None


def reasons_so_far(before: Sequence[str], now: Sequence[str]) -> list[str]:
    """The reasons of a run that goes on: of what stands in its config, "as asked" now, those it was started with."""
    first = {reason.split()[0]: reason for reason in before}
    return [first.get(reason.split()[0], reason) if reason.endswith("as asked") else reason for reason in now]
