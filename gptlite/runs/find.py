"""Which checkpoint is meant: the latest, the best, a step, a folder. A scan of valid folders decides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from gptlite.config.loading import Override, load_config
from gptlite.config.schema import RunConfig
from gptlite.errors import RunError
from gptlite.runs.checkpoint import Checkpoint, open_step, pointed_at, rank, scan, step_folders
from gptlite.runs.checkpoint_manifest import MANIFEST, Damaged
from gptlite.runs.run import CONFIG, Run


def latest(folder: Path, warn: Callable[[str], None], *, check_hashes: bool = True) -> Checkpoint | None:
    """The valid checkpoint of the highest step; None when nothing was saved.

    Passing over damaged ones takes one line to `warn`. A RunError when all are damaged.
    """
    damaged: list[Damaged] = []
    for each in scan(folder, check_hashes=check_hashes):
        if isinstance(each, Damaged):
            damaged.append(each)
            continue
        hint = pointed_at(folder, "latest")
        if damaged:
            warn(_fallback(damaged, each))
        elif hint is not None and hint > each.step:
            warn(f"{folder / 'latest.json'}: step = {hint}: its checkpoint is gone; using step {each.step} instead")
        return each
    if damaged:
        raise RunError(f"{damaged[0]}; no valid checkpoint is left, train a new run")
    return None


def best(folder: Path, warn: Callable[[str], None], *, check_hashes: bool = True) -> Checkpoint | None:
    """The valid checkpoint of the lowest score, the earlier of equals; None when nothing was saved.

    Where none has a score, the one that best.json names, else the newest. A RunError when all are damaged; one line to
    `warn` when some are (any may have been the best), when best.json names a lost one, when nothing says which is best.
    """
    hint = pointed_at(folder, "best")
    found = list(scan(folder, check_hashes=False))
    damaged = [each for each in found if isinstance(each, Damaged)]
    better: list[Damaged] = []  # than what is returned, as far as their manifests say
    for each in sorted((each for each in found if isinstance(each, Checkpoint)), key=lambda each: rank(each, hint)):
        try:
            choice = open_step(each.path, check_hashes=check_hashes)
        except Damaged as problem:
            better.append(problem)
            continue
        _explain_best(folder, choice, hint, better or damaged, warn)
        return choice
    if better or damaged:
        raise RunError(f"{(better or damaged)[0]}; no valid checkpoint is left, train a new run")
    return None


def _explain_best(
    folder: Path, choice: Checkpoint, hint: int | None, damaged: list[Damaged], warn: Callable[[str], None]
) -> None:
    lost = hint is not None and not (folder / f"step-{hint:08d}").exists()
    if damaged:
        warn(_fallback(damaged, choice))
    elif lost:
        warn(f"{folder / 'best.json'}: step = {hint}: its checkpoint is gone; using step {choice.step} instead")
    elif hint is None and choice.score is None:
        warn(f"{folder}: best = unknown: no checkpoint was evaluated; using the newest, step {choice.step}")


def find_checkpoint(folder: Path, which: str, warn: Callable[[str], None]) -> Checkpoint:
    """The checkpoint called "best", "latest" or by its step; its hashes are checked. A RunError when there is none."""
    if which in ("best", "latest"):
        found = (best if which == "best" else latest)(folder, warn)
        if found is None:
            raise RunError(f"{folder}: checkpoint = {which}: nothing is saved yet; train the run further")
        return found
    steps = {int(path.name[5:]): path for path in step_folders(folder)}
    if not (which.isascii() and which.isdigit() and int(which) in steps):
        there = ", ".join(str(step) for step in sorted(steps)) or "none yet"
        raise RunError(f"{folder}: checkpoint = {which[:40]}: best, latest or a step that was saved: {there}")
    return open_step(steps[int(which)], check_hashes=True)


def choose_checkpoint(root: Path, run: str, which: str | None, warn: Callable[[str], None]) -> Checkpoint:
    """The checkpoint `which` (None: best) of a run (a name under `root`, or a folder), or of a checkpoint's own folder.

    A RunError when there is none that is whole.
    """
    if run and (Path(run) / MANIFEST).is_file():
        if which is not None:
            raise RunError(f"--checkpoint = {which}: not with a checkpoint's own folder ({run}); leave it out")
        return Checkpoint.open(Path(run))
    return find_checkpoint(Run.open(root, run).checkpoints, which or "best", warn)


def run_of(checkpoint: Checkpoint) -> Run | None:
    """The run that a checkpoint lies in; None for a folder that was copied away from it."""
    folder = checkpoint.path.resolve().parent
    run = Run(folder.parent)
    return run if folder == run.checkpoints and run.started else None


def config_of(checkpoint: Checkpoint, overrides: Sequence[str | Override]) -> RunConfig:
    """The config of the run that a checkpoint lies in, changed; for a folder copied away from it, the defaults.

    Device and threads are chosen anew: a model that was trained on a GPU is used on a laptop. So is the precision of a
    run in bf16, since emulated bf16 is many times slower than fp32 and scores the same to 3e-5 bits per byte.
    """
    run = run_of(checkpoint)
    path = run.path / CONFIG if run is not None else None
    anew = [Override("saved", f"run.{key}", "auto") for key in ("device", "attention", "threads")]
    cfg = load_config(path, [*anew, *overrides])
    if cfg.run.precision == "bf16":
        anew.append(Override("saved", "run.precision", "auto"))
        cfg = load_config(path, [*anew, *overrides])
    return cfg


def _fallback(damaged: list[Damaged], instead: Checkpoint) -> str:
    more = f" (and {len(damaged) - 1} more damaged)" if len(damaged) > 1 else ""
    return f"{damaged[0]}{more}; using step {instead.step} instead"
