"""run.json: versions, command line, machine, and the reasons of the choices."""

from __future__ import annotations

import importlib.metadata
import platform
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from gptlite.compute.choice import GIVEN
from gptlite.compute.device import processor
from gptlite.data.dataset.prepared import Prepared
from gptlite.formatting import Say
from gptlite.planning.auto import Setup
from gptlite.runs.run import TOKENIZER
from gptlite.training.trainer import Trainer
from gptlite.version import __version__


def run_info(setup: Setup, trainer: Trainer, prepared: Prepared) -> dict[str, Any]:
    """Return the content of run.json."""
    packages = ("torch", "numpy", "tiktoken", "safetensors")
    versions = {name: importlib.metadata.version(name) for name in packages}
    return {
        "versions": {"gptlite": __version__, "python": platform.python_version(), **versions},
        "argv": sys.argv,
        "git_commit": git_commit(),
        "host": platform.node(),
        "processor": processor(trainer.compute.device),
        "device": setup.cfg.run.device,
        "world_size": trainer.dist.world_size,
        "threads": setup.cfg.run.threads,
        "parallel": setup.cfg.run.parallel if trainer.dist.world_size > 1 else "ddp",
        "reasons": {key: asdict(choice) for key, choice in setup.reasons.items()},
        "parameters": trainer.model.n_parameters(),
        "prepared": str(prepared.path.absolute()),
        "data": prepared.manifest.fingerprint,
        "ppmd": prepared.manifest.baselines.ppmd if prepared.manifest.compressors_meaningful else None,
        TOKENIZER: prepared.manifest.tokenizer.fingerprint,
    }


def run_info_resumed(before: Mapping[str, Any], now: Mapping[str, Any], say: Say) -> dict[str, Any]:
    """Return run.json for a session that resumes. A value that was not changed keeps the reason it was chosen for.

    Warn where torch, the processor, the number of threads or of processes is not what it was.
    """
    old, new = ({"parallel": "ddp", **info, "torch": info["versions"]["torch"]} for info in (before, now))
    named = {key: key for key in ("torch", "processor", "threads")}
    named |= {"world_size": "processes", "parallel": "run.parallel"}
    changed = [f"{what} {new[key]} (before: {old[key]})" for key, what in named.items() if old[key] != new[key]]
    if changed:
        say(
            f"warning: resumed with {', '.join(changed)}, so the end will not be bit for bit that of an uninterrupted "
            "run"
        )
    first, new_reasons = before["reasons"], now["reasons"]
    same = {key: first[key] for key, choice in new_reasons.items() if choice == {**first[key], "reason": GIVEN}}
    kept = {key: before[key] for key in ("argv", "git_commit")}
    return {**before, **now, **kept, "reasons": {**new_reasons, **same}, "resumed_by": sys.argv}


def git_commit() -> str | None:
    """Return the commit of the working directory's repository; None where there is none."""
    try:
        asked = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):  # no git: a fact about the machine, not a failure of the run
        return None
    return asked.stdout.strip() or None
