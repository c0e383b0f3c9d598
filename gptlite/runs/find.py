"""Find a checkpoint: the latest, the best, one of a step, one in a folder. A scan of valid folders decides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from gptlite.config.loading import Override, load_config
from gptlite.config.schema import RunConfig
from gptlite.errors import RunError
from gptlite.formatting import Say, counted
from gptlite.runs.checkpoint import Checkpoint, open_step, read_pointer, scan_checkpoints, sort_key, step_folders
from gptlite.runs.checkpoint_manifest import MANIFEST, Damaged
from gptlite.runs.run import CONFIG, Run
from gptlite.storage import files

T = TypeVar("T")


def find_latest(
    folder: Path,
    warn: Say,
    use: Callable[[Checkpoint], T] = Checkpoint.verified,  # type: ignore[assignment]
) -> T | None:
    """Return what `use` makes of the checkpoint of the highest step; None when nothing was saved.

    use: raises Damaged for one that it cannot use, and then gets the one before. Skipping damaged ones is one line to
    `warn`. Raise RunError when all are damaged.
    """
    damaged: list[Damaged] = []
    for each in scan_checkpoints(folder, check_hashes=False):
        if isinstance(each, Damaged):
            damaged.append(each)
            continue
        try:
            used = use(each)
        except Damaged as damage:
            if not each.path.exists():  # pruned meanwhile by the training of this run
                return find_latest(folder, warn, use)
            damaged.append(damage)
            continue
        hint = read_pointer(folder, "latest")
        if damaged:
            warn(_fallback(folder, each, damaged))
        elif hint is not None and hint > each.step:
            warn(_lost(folder, each, hint))
        return used
    if damaged:
        raise _all_damaged(folder, damaged)
    return None


def find_best(
    folder: Path,
    warn: Say,
    use: Callable[[Checkpoint], T] = Checkpoint.verified,  # type: ignore[assignment]
) -> T | None:
    """Return what `use` makes of the checkpoint of the lowest score, the earliest of equals; None if nothing was saved.

    Where none has a score, it is the one in best.json, else the newest. `use` is as in `find_latest`. Raise RunError
    when all are damaged. Send one line to `warn` when some are damaged, since any of them may be the best; when the one
    in best.json is lost; and when nothing says which is the best.
    """
    hint = read_pointer(folder, "best")
    found = list(scan_checkpoints(folder, check_hashes=False))
    damaged = [each for each in found if isinstance(each, Damaged)]
    better: list[Damaged] = []  # by the score in their manifests
    for each in sorted((each for each in found if isinstance(each, Checkpoint)), key=lambda each: sort_key(each, hint)):
        try:
            used = use(each)
        except Damaged as damage:
            if not each.path.exists():
                return find_best(folder, warn, use)
            better.append(damage)
            continue
        _explain_best(folder, each, hint, better or damaged, warn)
        return used
    if better or damaged:
        raise _all_damaged(folder, better or damaged)
    return None


def _explain_best(folder: Path, choice: Checkpoint, hint: int | None, damaged: list[Damaged], warn: Say) -> None:
    lost = hint is not None and not (folder / f"step-{hint:08d}").exists()
    if damaged:
        warn(_fallback(folder, choice, damaged))
    elif hint is not None and lost:
        warn(_lost(folder, choice, hint))
    elif hint is None and choice.score is None:
        warn(f"{folder}: using the newest checkpoint, step {choice.step}, since none was evaluated.")


def find_checkpoint(folder: Path, which: str, warn: Say) -> Checkpoint:
    """Return the checkpoint "best", "latest" or of a step, for its model: what only training needs is not checked.

    Raise RunError when there is none.
    """
    if which in ("best", "latest"):
        found = (find_best if which == "best" else find_latest)(folder, warn, _with_model)
        if found is None:
            raise (
                none_left(folder)
                if read_pointer(folder, "latest") is not None
                else RunError("there is no checkpoint yet. Train the run further.", str(folder))
            )
        return found
    steps = {int(path.name[5:]): path for path in step_folders(folder)}
    if not (which.isascii() and which.isdigit() and int(which) in steps):
        saved = ", ".join(str(step) for step in sorted(steps)) or "none yet"
        raise RunError(f"there is no checkpoint {which[:40]}. Give best, latest or a saved step: {saved}.", str(folder))
    return _with_model(open_step(steps[int(which)], check_hashes=False))


def _with_model(checkpoint: Checkpoint) -> Checkpoint:
    return checkpoint.verified(skip=("optimizer.safetensors",))


def none_left(folder: Path) -> RunError:
    """The error for a run whose checkpoints are gone."""
    return RunError(
        "the checkpoints of this run are gone, although it was trained. Put them back, or start a new run.", str(folder)
    )


def choose_checkpoint(root: Path, run: str, which: str | None, warn: Say) -> Checkpoint:
    """Return a checkpoint of a run, which is a name under `root` or a folder; or the one whose own folder `run` is.

    which: best (None too), latest or a step. Raise RunError when there is none that is valid.
    """
    with files.storage_errors(Path(run), "read"):
        is_checkpoint = run != "" and (Path(run) / MANIFEST).is_file()
    if is_checkpoint:
        if which is not None:
            raise RunError(f"this is the folder of one checkpoint, so no other can be chosen. Leave out {which}.", run)
        return _with_model(Checkpoint.open(Path(run), check_hashes=False))
    opened = Run.open(root, run)
    try:
        opened.check_config()
    except RunError as problem:  # the model is that of the checkpoint; only how it is sampled and scored may differ
        warn(f"warning: {problem}")
    return find_checkpoint(opened.checkpoints, which or "best", warn)


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


def _fallback(folder: Path, chosen: Checkpoint, damaged: list[Damaged]) -> str:
    return (
        f"{folder}: using step {chosen.step}, since {counted(len(damaged), 'checkpoint')} cannot be read: {damaged[0]}"
    )


def _lost(folder: Path, chosen: Checkpoint, hint: int) -> str:
    return f"{folder}: using step {chosen.step}, since the checkpoint of step {hint} is missing."


def _all_damaged(folder: Path, damaged: list[Damaged]) -> RunError:
    return RunError(f"no checkpoint can be read. Train a new run. The first problem is {damaged[0]}", str(folder))
