"""`gptlite runs rm`: what would go, and whether it may."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from gptlite import files
from gptlite.cli.terminal import emit
from gptlite.errors import ConfigError, RunError
from gptlite.formatting import counted
from gptlite.runs.run import Run


def check_removable(runs: Sequence[Run]) -> None:
    """RunError for runs that somebody trains, and for links, behind which the run would stay."""
    problems = [
        f"{run.path}: run = in training: one that nobody trains; stop it first" for run in runs if run.locked
    ] + [
        f"{run.path}: run = a link: the run's own folder; name {run.path.resolve()}"
        for run in runs
        if run.path.is_symlink()
    ]
    if problems:
        raise RunError(problems)


def described(run: Run) -> str:
    """What goes with a run: its folder, its checkpoints, its bytes."""
    with files.storage_errors(run.path, "read"):
        sizes = [(Path(folder) / name).lstat().st_size for folder, _, names in os.walk(run.path) for name in names]
        checkpoints = len(list(run.checkpoints.glob("step-*")))
    return f"{run.path}: {counted(checkpoints, 'checkpoint')}, {counted(len(sizes), 'file')}, {sum(sizes):,} bytes"


def ask(runs: Sequence[Run]) -> bool:
    """Whether somebody says yes. ConfigError where nobody is there to ask."""
    emit(f"remove {counted(len(runs), 'run')}? [y/N] ")
    try:
        return input().strip().lower() in ("y", "yes")
    except EOFError:
        emit("\n")
        raise ConfigError("--yes = missing: an answer, and there was none; nothing is removed") from None
