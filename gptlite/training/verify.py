"""Check every file of a run against its digest, without changing anything: `gptlite runs verify`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from gptlite.errors import DataError
from gptlite.loggers.metrics import LogEnd, read_content
from gptlite.runs.checkpoint import Checkpoint, open_step, step_folders
from gptlite.runs.find import find_text
from gptlite.runs.run import CONFIG, INFO, Run
from gptlite.storage.sealed import Check, check_file, check_folder, read_sealed
from gptlite.training.reconcile import saved_config


def check_run(run: Run) -> tuple[list[Check], Checkpoint | None]:
    """Return a check of each file, and the checkpoint that a resume would use; None where there is none."""
    checks = [check_file(run.path / INFO, lambda: run.info)]
    if checks[0].problem is None:
        checks += [check_file(run.path / CONFIG, run.check_config), _check_text(run)]
    facts = (run.path / "finished.json", run.path / "diverged.json", *run.checkpoints.glob("*.json"))
    checks += [check_file(path, partial(read_sealed, path)) for path in facts if path.exists()]
    newest = None
    for folder in step_folders(run.checkpoints)[::-1]:
        of_folder = list(check_folder(folder, partial(open_step, folder)))
        if all(check.problem is None for check in of_folder):
            newest = open_step(folder)
        checks += of_folder
    if newest is not None:
        checks += _check_logs(run, newest)
    return checks, newest


def _check_logs(run: Run, newest: Checkpoint) -> Iterator[Check]:
    """Yield a check of each log, up to where it was when the newest checkpoint was saved; a finished run ends there."""
    for name, fields in newest.read_json("state.json")["logs"].items():
        path, end, problem = run.path / name, LogEnd(**fields), None
        if not end.matches(read_content(path)):
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

    return check_file(Path(run.info["prepared"]), verify)
