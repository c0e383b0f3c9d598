"""The folder of a run: its name, its state and its lock.

    runs/small/  config.yaml  run.json  finished.json  metrics.jsonl  samples.jsonl  tb/  checkpoints/  .lock

A folder with a config.yaml is a run. finished.json says that training is complete, diverged.json that it went
non-finite.
"""

from __future__ import annotations

import difflib
import itertools
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from gptlite import files, locks
from gptlite.errors import Diverged, RunError
from gptlite.json_files import read_versioned, write_versioned

T = TypeVar("T")

CONFIG = "config.yaml"
INFO = "run.json"
DEFAULT_FOLDER = "runs"
_MAX_NAME_BYTES = 200  # file systems allow 255, and unfinished files have a suffix
_RESERVED = ("latest", "best")


def runs_folder(configured: str = DEFAULT_FOLDER, environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of runs: run.dir unless it is the default, else $GPTLITE_RUNS, else ./runs."""
    chosen = environment.get("GPTLITE_RUNS") or configured if configured == DEFAULT_FOLDER else configured
    return Path(chosen).expanduser()


@dataclass(frozen=True)
class Run:
    """A run, given by its folder, which need not exist."""

    path: Path

    @classmethod
    def create(cls, root: Path, name: str | None, base: str) -> Run:
        """Make the folder `root/name`, or without a name the first free one of base, base-2, base-3, ...

        Processes that start at once get different names. Raise RunError when a given name is taken or invalid.
        """
        cls.check_name(name, base)
        files.make_dirs(root)
        if name is None:
            return cls(next(path for path in _numbered(root, base) if files.create_dir(path)))
        if not files.create_dir(root / name):
            raise _taken(root, name)
        return cls(root / name)

    @classmethod
    def check_free(cls, root: Path, name: str | None, base: str) -> None:
        """Raise the RunError that `create` would raise, without making a folder."""
        cls.check_name(name, base)
        if name is not None and (root / name).exists():
            raise _taken(root, name)

    @classmethod
    def check_name(cls, name: str | None, base: str) -> None:
        """Raise RunError where `name`, or without it `base`, cannot be the name of a run."""
        name = base if name is None else name
        if reason := _why_invalid(name):
            shown = name if name.isprintable() and 0 < len(name) <= 40 else repr(name[:40])
            raise RunError(f"a run's name {reason}. Choose another name.", f"run {shown}")

    @classmethod
    def claim(cls, root: Path, name: str) -> Run:
        """Return the run `root/name`, with its folder made if it was missing; `started` says whether there is more.

        Can be repeated after a kill between making the folder and writing config.yaml.
        """
        cls.check_name(name, name)
        files.make_dirs(root)
        run = cls(root / name)
        if not files.create_dir(run.path) and not run.started and _holds_other_files(run.path):
            raise _not_a_run(run.path)
        return run

    @classmethod
    def open(cls, root: Path, name_or_path: str, *, unfinished: bool = False) -> Run:
        """Return the run of this name under `root`, or at this path; "latest" is the newest (unfinished) one.

        Raise RunError, with the runs that exist, when there is none.
        """
        if name_or_path == "latest":
            return cls.newest(root, unfinished=unfinished)
        with files.storage_errors(root / name_or_path, "read"):
            found = [path for path in (root / name_or_path, Path(name_or_path)) if name_or_path and path.exists()]
            for path in found:
                if (path / CONFIG).is_file():
                    return cls(path)
        if found:
            raise _not_a_run(found[0])
        names = [run.name for run in cls.all(root)]
        near = difflib.get_close_matches(name_or_path, names, n=1)
        advice = f"Did you mean {near[0]}?" if near else f"The newest runs are {', '.join(names[-5:])}."
        raise RunError(
            f"there is no run of this name in {root}, and no such folder. {advice if names else 'Train a run first.'}",
            f"run {name_or_path or repr(name_or_path)}",
        )

    @classmethod
    def all(cls, root: Path) -> list[Run]:
        """Return every run under `root` by its start, then its name; none when there is no such folder."""
        with files.storage_errors(root, "read"):
            paths = [path.parent for path in root.glob(f"*/{CONFIG}")]
        found = [cls(path) for path in paths if files.TEMP_MARK not in path.name]  # which are half removed
        return sorted(found, key=lambda run: (run.started_at, run.name))

    @classmethod
    def newest(cls, root: Path, *, unfinished: bool = False) -> Run:
        """Return the run that started last. Raise RunError when there is none."""
        runs = [run for run in cls.all(root) if not (unfinished and run.finished)]
        if not runs:
            kind = "unfinished run" if unfinished else "run"
            raise RunError(f"there is no {kind} in this folder. Train one, or name a run.", str(root))
        return runs[-1]

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.resolve().name

    @property
    def handle(self) -> str:
        """How commands find the run: its name if it is in the default folder of runs, else its path."""
        return self.name if self.path.resolve().parent == runs_folder().resolve() else str(self.path)

    @property
    def checkpoints(self) -> Path:
        """The folder of checkpoints, which need not exist."""
        return self.path / "checkpoints"

    @property
    def started(self) -> bool:
        """Whether config.yaml was written."""
        return (self.path / CONFIG).is_file()

    @property
    def started_at(self) -> float:
        """The start in run.json, in seconds since 1970; the folder's last change where run.json is damaged."""
        try:
            return datetime.fromisoformat(self.info["started_at"]).timestamp()
        except (RunError, KeyError, TypeError, ValueError, OverflowError):
            with files.storage_errors(self.path, "read"):
                return self.path.stat().st_mtime

    @property
    def finished(self) -> bool:
        """Whether training is complete."""
        return (self.path / "finished.json").is_file()

    @property
    def diverged(self) -> bool:
        """Whether training went non-finite."""
        return (self.path / "diverged.json").is_file()

    @property
    def info(self) -> dict[str, Any]:
        """The content of run.json."""
        return read_versioned(self.path / INFO)

    def recorded(self, key: str, kind: type[T]) -> T:
        """Return an entry of run.json. Raise RunError when it is missing or of another type."""
        value = self.info.get(key)
        if type(value) is not kind:
            raise RunError(f"{key} is {value}: this file is damaged. Start a new run.", str(self.path / INFO))
        return value

    def config_text(self) -> str:
        """Return the text of config.yaml."""
        path = self.path / CONFIG
        try:
            return path.read_bytes().decode()
        except (OSError, UnicodeDecodeError) as error:
            raise RunError(f"the run's config cannot be read: {error}.", str(path)) from error

    def write_config(self, text: str) -> None:
        """Write or replace config.yaml durably, which makes the folder a run."""
        files.replace(self.path / CONFIG, text.encode())

    def write_info(self, info: Mapping[str, Any]) -> None:
        """Write or replace run.json durably. `started_at` is now unless `info` has it."""
        write_versioned(self.path / INFO, {"started_at": datetime.now(UTC).isoformat(), **info})

    def finish(self, info: Mapping[str, Any]) -> None:
        """Write finished.json durably: training is complete, with these results."""
        write_versioned(self.path / "finished.json", {"finished_at": datetime.now(UTC).isoformat(), **info})

    @contextmanager
    def noting_divergence(self) -> Iterator[None]:
        """Write diverged.json durably when the training inside raises Diverged."""
        try:
            yield
        except Diverged as error:
            write_versioned(self.path / "diverged.json", {"problem": str(error)})
            raise

    def reopen(self) -> None:
        """Remove finished.json and diverged.json, since training continues."""
        for name in ("finished.json", "diverged.json"):
            files.remove_tree(self.path / name)

    def lock(self, holder: str = "gptlite train") -> AbstractContextManager[None]:
        """Hold the lock, without which a run must not be changed. Raise RunError, naming the holder, if it is taken."""
        return locks.lock(self.path / ".lock", holder)

    @property
    def locked(self) -> bool:
        """Whether a process holds the lock, so that the run is being trained."""
        return locks.locked(self.path / ".lock")

    def remove(self) -> None:
        """Remove the run's folder. Call it only while holding the lock."""
        files.remove_tree(self.path)

    def remove_leftovers(self) -> list[Path]:
        """Remove and return unfinished files of a killed process. Call it only while holding the lock."""
        return [*files.remove_leftovers(self.path), *files.remove_leftovers(self.checkpoints)]


def _numbered(root: Path, base: str) -> Iterator[Path]:
    yield root / base
    for number in itertools.count(2):
        yield root / f"{base}-{number}"


def _taken(root: Path, name: str) -> RunError:
    free = next(path.name for path in _numbered(root, name) if not path.exists())
    return RunError(f"this name is taken. Continue that run, or choose another name such as {free}.", f"run {name}")


def _holds_other_files(path: Path) -> bool:
    """Whether a folder has files that a start that was killed before it wrote config.yaml does not leave."""
    with files.storage_errors(path, "read"):
        names = [each.name for each in path.iterdir()]
    return any(not (name.startswith(".") or files.TEMP_MARK in name or name == INFO) for name in names)


def _not_a_run(path: Path) -> RunError:
    if (path / "MANIFEST.json").is_file():
        run = path.absolute().parent.parent
        return RunError(f"this is a checkpoint, not a run. Its run is {run.name}.", str(path))
    return RunError(f"this is not the folder of a run, since it has no {CONFIG}.", str(path))


def _why_invalid(name: str) -> str | None:
    if not name:
        return "cannot be empty"
    if name.lower() in _RESERVED:
        return f"cannot be {' or '.join(_RESERVED)}, which are reserved"
    if "/" in name or "\\" in name or not name.isprintable() or name != name.strip():
        return "cannot contain slashes or control characters, nor begin or end with a space"
    if name[0] in ".-":
        return "cannot begin with a dot or a dash"
    if files.TEMP_MARK in name:
        return f"cannot contain {files.TEMP_MARK}, which marks unfinished files"
    if len(name.encode()) > _MAX_NAME_BYTES:
        return f"can have at most {_MAX_NAME_BYTES} bytes"
    return None
