"""Check every file of a run against its digest, without changing anything: `gptlite runs verify`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from gptlite.errors import DataError, UserError
from gptlite.loggers.metrics import LogEnd, starts_with
from gptlite.runs.checkpoint import Checkpoint, open_step, step_folders
from gptlite.runs.find import find_text
from gptlite.runs.run import CONFIG, INFO, Run
from gptlite.storage.sealed import MANIFEST, read_sealed
from gptlite.training.reconcile import saved_config


class Check(NamedTuple):
    """A file, and what is wrong with it; None where it is as it was written."""

    path: Path
    problem: str | None = None


def check_run(run: Run) -> tuple[list[Check], Checkpoint | None]:
    """Return a check of each file, and the checkpoint that a resume would use; None where there is none."""
    checks = [_check(run.path / INFO, lambda: run.info)]
    if checks[0].problem is None:
        checks += [_check(run.path / CONFIG, run.check_config), _check_text(run)]
    facts = (run.path / "finished.json", run.path / "diverged.json", *run.checkpoints.glob("*.json"))
    checks += [_check(path, partial(read_sealed, path)) for path in facts if path.exists()]
    newest = None
    for folder in step_folders(run.checkpoints)[::-1]:
        valid, more = _check_checkpoint(folder)
        checks += more
        newest = valid or newest
    if newest is not None:
        checks += _check_logs(run, newest)
    return checks, newest


def _check(path: Path, read: Callable[[], object]) -> Check:
    try:
        read()
    except UserError as error:
        problem = error.problems[0]
        return Check(Path(problem.where or path), problem.sentence)
    return Check(path)


def _check_checkpoint(folder: Path) -> tuple[Checkpoint | None, list[Check]]:
    """Return the checkpoint in a folder if it is valid, and a check of each file."""
    try:
        opened = open_step(folder)
    except UserError as error:
        problem = error.problems[0]
        return None, [Check(Path(problem.where or folder), problem.sentence)]
    checks = [_check(folder / name, partial(opened.check, name)) for name in sorted(opened.files)]
    return None if any(problem for _, problem in checks) else opened, [Check(folder / MANIFEST), *checks]


def _check_logs(run: Run, newest: Checkpoint) -> Iterator[Check]:
    """Yield a check of each log, up to where it was when the newest checkpoint was saved; a finished run ends there."""
    for name, fields in newest.read_json("state.json")["logs"].items():
        path, end, problem = run.path / name, LogEnd(**fields), None
        if not starts_with(path, end):
            problem = f"it changed after it was written, or lacks lines that were there at step {newest.step}"
        elif run.finished and path.stat().st_size > end.size:
            problem = f"something was appended after the run was finished at step {newest.step}"
        yield Check(path, problem)


def _check_text(run: Run) -> Check:
    """Return a check of the prepared text."""

    def verify() -> None:
        prepared = find_text(run, saved_config(run))
        if prepared is None:
            raise DataError("the prepared text is not there; it will be prepared again from its source")
        prepared.verify()

    return _check(Path(run.info["prepared"]), verify)
