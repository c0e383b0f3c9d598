"""The folder of a run: its name, its state and its lock.

    runs/small/  config.yaml  run.json  finished.json  metrics.jsonl  samples.jsonl  tb/  checkpoints/  .lock

A folder with a config.yaml is a run. finished.json says that training is complete, diverged.json that it went
non-finite.
"""

from __future__ import annotations

import difflib
import itertools
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from gptlite.config.yaml import shown
from gptlite.errors import Damaged, Diverged, RunError
from gptlite.runs.checkpoint import read_pointer
from gptlite.storage import files, locks
from gptlite.storage.sealed import read_sealed, write_sealed

CONFIG = "config.yaml"
INFO = "run.json"  # written before config.yaml
CLOCK = "clock.json"  # of a run that repeats the clock of another: what it decided
_MAX_NAME_BYTES = 200  # file systems allow 255, and unfinished files have a suffix
_RESERVED = ("latest", "best")
CONFIG_DIGEST, REPLACED_DIGEST = "config_sha256", "replaced_config_sha256"  # in run.json
TOKENIZER, TOKENIZER_FROM = "tokenizer", "tokenizer_from"  # in run.json: a fingerprint; tokenizer.from as it was given
DEFAULT_FOLDER = "runs"


def runs_folder(configured: str = DEFAULT_FOLDER) -> Path:
    """Return the folder of runs: run.dir unless it is the default, else $GPTLITE_RUNS, else ./runs."""
    chosen = os.environ.get("GPTLITE_RUNS") or configured if configured == DEFAULT_FOLDER else configured
    return Path(os.path.expanduser(chosen))


@dataclass(frozen=True)
class Run:
    """A run, given by its folder, which need not exist."""

    path: Path

    @classmethod
    def create(cls, root: Path, name: str | None, base: str) -> Run:
        """Make the folder `root/name`, or without a name the first free one of base, base-2, base-3, ...

        Processes that start at once without a name get different ones. A name can be given again after a kill between
        making the folder and writing config.yaml. Raise RunError when a given name is taken or invalid.
        """
        cls.check_free(root, name, base)
        files.make_dirs(root)
        if name is None:
            return cls(next(path for path in numbered(root, base) if files.create_dir(path)))
        files.create_dir(root / name)
        return cls(root / name)

    @classmethod
    def check_free(cls, root: Path, name: str | None, base: str) -> None:
        """Raise the RunError that `create` would raise, without making a folder."""
        check_name(name, base)
        if name is not None and not is_free(root / name):
            free = next(path.name for path in numbered(root, name) if not path.exists())
            advice = f"Continue that run with --resume {name}, or choose another name such as {free}."
            raise RunError(f"this name is taken. {advice}", f"run {name}")

    @classmethod
    def open(cls, root: Path, name_or_path: str, *, unfinished: bool = False) -> Run:
        """Return the run of this name under `root`, or at this path; "latest" is the newest (unfinished) one.

        Raise RunError, with the runs that exist, when there is none.
        """
        if name_or_path == "latest":
            runs = [run for run in cls.all(root) if not (unfinished and run.finished)]
            if not runs:
                kind = "unfinished run" if unfinished else "run"
                raise RunError(f"there is no {kind} in this folder. Train one, or name a run.", str(root))
            return runs[-1]
        with files.storage_errors(root / name_or_path, "read"):
            paths = [path for path in (root / name_or_path, Path(name_or_path)) if name_or_path and path.exists()]
            for path in paths:
                if (path / CONFIG).is_file():
                    return cls(path)
        if paths:
            raise RunError(f"this is not the folder of a run, since it has no {CONFIG}.", str(paths[0]))
        names = [run.name for run in cls.all(root)]
        near = [name for name in names if name_or_path and name.startswith(f"{name_or_path}-")]  # seeds, a sweep
        near = near or difflib.get_close_matches(name_or_path, names, n=1)
        advice = f"Did you mean {near[0]}?" if near else f"The newest runs are {', '.join(names[-5:])}."
        raise RunError(
            f"there is no run of this name in {root}, and no such folder. {advice if names else 'Train a run first.'}",
            f"run {shown(name_or_path)}",
        )

    @classmethod
    def all(cls, root: Path) -> list[Run]:
        """Return every run under `root`, oldest first; none when there is no such folder."""
        with files.storage_errors(root, "read"):
            paths = [path.parent for path in root.glob(f"*/{CONFIG}")]
        return sorted(map(cls, paths), key=lambda run: (run.started_at, run.name))

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.resolve().name

    @property
    def handle(self) -> str:
        """The run as commands find it: its name if it is in the default folder of runs, else its path."""
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
        except RunError:
            with files.storage_errors(self.path, "read"):
                return self.path.stat().st_mtime

    @property
    def has_trained(self) -> bool:
        """Whether there is something that is only written after the first checkpoint, such as the loss of an update."""
        marks = (self.path / "finished.json", self.checkpoints / "latest.json", self.checkpoints / "best.json")
        metrics = self.path / "metrics.jsonl"
        with files.storage_errors(metrics, "read"):
            has_updates = metrics.is_file() and re.search(rb'"step": [1-9]', metrics.read_bytes()) is not None
        return has_updates or any(os.path.lexists(mark) for mark in marks)

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
        return read_sealed(self.path / INFO)

    @property
    def replays(self) -> bool:
        """Whether it repeats the clock of another run."""
        return (self.path / CLOCK).exists()

    @property
    def end(self) -> dict[str, Any]:
        """The content of finished.json."""
        return read_sealed(self.path / "finished.json")

    def config_text(self) -> str:
        """Return the text of config.yaml."""
        path = self.path / CONFIG
        try:
            return path.read_bytes().decode()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise RunError(f"the run's config cannot be read: {reason}.", str(path)) from error

    def check_config(self) -> None:
        """Raise Damaged unless config.yaml is what was written, or what it replaced in a resume that was killed."""
        info, digest = self.info, sha256(self.config_text().encode()).hexdigest()
        if digest not in (written := info.get(CONFIG_DIGEST), info.get(REPLACED_DIGEST)):
            raise Damaged(
                f"this file changed after it was written: its sha256 was {str(written)[:12]} and is now {digest[:12]}. "
                "Restore it. To change a run, give the new values when you resume it.",
                str(self.path / CONFIG),
            )

    def write_setup(self, info: Mapping[str, Any], config: str) -> None:
        """Write or replace run.json and then config.yaml, durably; the latter makes the folder a run.

        run.json is sealed and holds the digest of config.yaml; of the replaced one too, because a kill may come between
        the two. A new run gets its start, `started_at`: now, or later where a run beside it is newer, since the clock
        was set back.
        """
        replaced = sha256(self.config_text().encode()).hexdigest() if self.started else None
        if "started_at" not in info:
            newest = max((run.started_at for run in Run.all(self.path.parent)), default=0.0)
            started_at = max(datetime.now(UTC), datetime.fromtimestamp(newest + 1e-3, UTC))
            info = {**info, "started_at": started_at.isoformat()}
        digests = {CONFIG_DIGEST: sha256(config.encode()).hexdigest(), REPLACED_DIGEST: replaced}
        write_sealed(self.path / INFO, {**info, **digests})
        files.replace(self.path / CONFIG, config.encode())

    def finish(self, info: Mapping[str, Any]) -> None:
        """Write finished.json durably: training is complete, with these results."""
        write_sealed(self.path / "finished.json", {"finished_at": datetime.now(UTC).isoformat(), **info})

    @contextmanager
    def noting_divergence(self) -> Iterator[None]:
        """Write diverged.json durably when the training inside raises Diverged: what happened, in which step, and the
        checkpoint from which a resume repeats it."""
        try:
            yield
        except Diverged as error:
            last = read_pointer(self.checkpoints, "latest")
            write_sealed(self.path / "diverged.json", {"problem": str(error), **error.facts, "last_checkpoint": last})
            raise

    def reopen(self) -> None:
        """Remove finished.json and diverged.json, since training continues."""
        for name in ("finished.json", "diverged.json"):
            files.remove_tree(self.path / name)

    def lock(self) -> AbstractContextManager[None]:
        """Hold the lock, without which a run must not be changed. Raise RunError, naming the holder, if it is taken."""
        return locks.lock(self.path / ".lock", "gptlite train")

    @property
    def locked(self) -> bool:
        """Whether a process holds the lock, so that the run is being trained."""
        return locks.locked(self.path / ".lock")

    def remove_leftovers(self) -> list[Path]:
        """Remove and return unfinished files of a killed process. Call it only while holding the lock."""
        return [path for folder in ("", "checkpoints", "tb") for path in files.remove_leftovers(self.path / folder)]


def check_name(name: str | None, base: str) -> None:
    """Raise RunError where `name`, or without it `base`, cannot be the name of a run."""
    name = base if name is None else name
    reserved = name.lower() in _RESERVED or files.TEMP_MARK in name or not name.isprintable()
    if reserved or not re.fullmatch(r"[^\s/\\.-]([^/\\]*[^\s/\\])?", name) or len(name.encode()) > _MAX_NAME_BYTES:
        raise RunError(
            f"a run cannot have this name. A name has 1 to {_MAX_NAME_BYTES} bytes without slashes, control characters "
            f"and {files.TEMP_MARK}, begins with no dot, dash or space, ends with no space, and is neither latest nor "
            "best. Choose another name.",
            f"run {shown(name)}",
        )


def numbered(root: Path, base: str) -> Iterator[Path]:
    """Yield the folders base, base-2, base-3, ..."""
    yield root / base
    for number in itertools.count(2):
        yield root / f"{base}-{number}"


def is_free(path: Path) -> bool:
    """Return whether a run can begin here: there is nothing, or what a start leaves that was killed early."""
    if not os.path.lexists(path):
        return True
    with files.storage_errors(path, "read"):
        names = [entry.name for entry in path.iterdir()] if path.is_dir() else [path.name]
    return all(name.startswith(".") or files.TEMP_MARK in name or name == INFO for name in names)
