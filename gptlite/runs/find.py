"""Find a checkpoint: the latest, the best, one of a step, one in a folder. A scan of valid folders decides."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from gptlite.config.loading import Override, load_config
from gptlite.config.schema import RunConfig
from gptlite.errors import Damaged, RunError
from gptlite.formatting import Say, counted
from gptlite.runs.checkpoint import Checkpoint, open_step, read_pointer, scan_checkpoints, step_folders
from gptlite.runs.run import CONFIG, Run
from gptlite.storage import files
from gptlite.storage.sealed import MANIFEST

T = TypeVar("T")


def find_valid(
    folder: Path,
    which: str,
    say: Say,
    use: Callable[[Checkpoint], T] = Checkpoint.verified,  # type: ignore[assignment]
) -> T | None:
    """Return what `use` makes of the checkpoint of the highest step or of the best score; None if nothing was saved.

    which: "latest" or "best". use: raises Damaged for one that it cannot use, and then gets the next. A line to `say`
    tells that some are damaged, that the one in the pointer is lost, or that none was evaluated. Raise RunError when
    all are damaged.
    """
    damaged: list[Damaged] = []
    scanned = list(scan_checkpoints(folder))
    for checkpoint in scanned if which == "latest" else sorted(scanned, key=_rank):
        try:
            if isinstance(checkpoint, Damaged):
                raise checkpoint
            used = use(checkpoint)
        except Damaged as damage:
            if isinstance(checkpoint, Checkpoint) and not os.path.lexists(checkpoint.path):
                return find_valid(folder, which, say, use)  # pruned meanwhile by the training of this run
            damaged.append(damage)
            continue
        if reason := _why(folder, which, checkpoint, damaged):
            say(f"{folder}: using {reason}")
        return used
    if damaged:
        raise RunError(f"no checkpoint can be read. Train a new run. The first problem is {damaged[0]}", str(folder))
    return None


def _rank(found: Checkpoint | Damaged) -> tuple[float, int]:
    """Sort the lowest score first, of equals the earliest; without scores the newest. A damaged one may be the best."""
    if isinstance(found, Damaged):
        return -math.inf, 0
    return (math.inf, -found.step) if found.score is None else (found.score, found.step)


def _why(folder: Path, which: str, chosen: Checkpoint, damaged: Sequence[Damaged]) -> str | None:
    """Return what to say of a choice; None where it needs no explanation."""
    if damaged:
        return f"step {chosen.step}, since {counted(len(damaged), 'checkpoint')} cannot be read: {damaged[0]}"
    if which == "best" and chosen.score is None:
        return f"the newest checkpoint, step {chosen.step}, since none was evaluated."
    hint = read_pointer(folder, which)
    if hint is None or (folder / f"step-{hint:08d}").exists() or (which == "latest" and hint <= chosen.step):
        return None
    return f"step {chosen.step}, since the checkpoint of step {hint} is missing."


def find_checkpoint(folder: Path, which: str, say: Say) -> Checkpoint:
    """Return the checkpoint "best", "latest" or of a step, for its model: what only training needs is not checked.

    Raise RunError when there is none.
    """
    if which in ("best", "latest"):
        if (chosen := find_valid(folder, which, say, _with_model)) is not None:
            return chosen
        if read_pointer(folder, "latest") is not None:
            raise none_left(folder)
        raise RunError("there is no checkpoint yet. Train the run further.", str(folder))
    steps = {int(path.name[5:]): path for path in step_folders(folder)}
    if not (which.isascii() and which.isdigit() and int(which) in steps):
        saved = ", ".join(str(step) for step in sorted(steps)) or "none yet"
        raise RunError(f"there is no checkpoint {which[:40]}. Give best, latest or a saved step: {saved}.", str(folder))
    return _with_model(open_step(steps[int(which)]))


def _with_model(checkpoint: Checkpoint) -> Checkpoint:
    return checkpoint.verified(skip=("optimizer.safetensors",))


def none_left(folder: Path) -> RunError:
    """Return the error for a run whose checkpoints are gone."""
    return RunError(
        "the checkpoints of this run are gone, although it was trained. Put them back, or start a new run.", str(folder)
    )


def choose_checkpoint(root: Path, run: str, which: str | None, say: Say) -> Checkpoint:
    """Return a checkpoint of a run, which is a name under `root` or a folder; or the one whose own folder `run` is.

    which: best (None too), latest or a step. Raise RunError when there is none that is valid.
    """
    with files.storage_errors(Path(run), "read"):
        is_checkpoint = run != "" and (Path(run) / MANIFEST).is_file()
    if is_checkpoint:
        if which is not None:
            raise RunError(f"this is the folder of one checkpoint, so no other can be chosen. Leave out {which}.", run)
        return _with_model(Checkpoint.open(Path(run)))
    opened = Run.open(root, run)
    try:
        opened.check_config()
    except RunError as problem:  # the model is that of the checkpoint; only how it is sampled and scored may differ
        say(f"warning: {problem}")
    return find_checkpoint(opened.checkpoints, which or "best", say)


def find_run(checkpoint: Checkpoint) -> Run | None:
    """Return the run that contains a checkpoint; None for a checkpoint that was copied elsewhere."""
    folder = checkpoint.path.resolve().parent
    run = Run(folder.parent)
    return run if folder == run.checkpoints and run.started else None


def run_name(checkpoint: Checkpoint) -> str:
    """Return the name of the run that contains a checkpoint; of a copied one, the name of its folder."""
    run = find_run(checkpoint)
    return checkpoint.path.resolve().name if run is None else run.name


def load_checkpoint_config(checkpoint: Checkpoint, overrides: Sequence[str | Override]) -> RunConfig:
    """Return the config of the run that contains a checkpoint, with overrides; else the default config.

    Device and threads are chosen again, since a model trained on a GPU may be used on a laptop. So is the precision of
    a bf16 run: emulated bf16 is many times slower than fp32, and scores are equal to 3e-5 bits per byte.
    """
    run = find_run(checkpoint)
    path = run.path / CONFIG if run is not None else None
    automatic = [Override("saved", f"run.{key}", "auto") for key in ("device", "attention", "threads")]
    cfg = load_config(path, [*automatic, *overrides])
    if cfg.run.precision == "bf16":
        automatic.append(Override("saved", "run.precision", "auto"))
        cfg = load_config(path, [*automatic, *overrides])
    return cfg
