"""The folder of a run: its name, its lifecycle, its lock.

    runs/small/  config.yaml  run.json  finished.json  metrics.jsonl  samples.jsonl  tb/  checkpoints/  .lock

A folder is a run when it holds config.yaml. It is finished when it holds finished.json; diverged.json says instead that
training went non-finite.
"""

from __future__ import annotations

import difflib
import itertools
import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from gptlite import files
from gptlite.errors import Diverged, RunError
from gptlite.json_files import read_record, write_record

T = TypeVar("T")

CONFIG = "config.yaml"
INFO = "run.json"
DEFAULT_FOLDER = "runs"
_MAX_NAME_BYTES = 200  # file systems take 255; unfinished files carry a suffix
_RESERVED = ("latest", "best")


def runs_folder(configured: str = DEFAULT_FOLDER, environment: Mapping[str, str] = os.environ) -> Path:
    """Where runs lie: run.dir where it is not the default, else the environment's GPTLITE_RUNS, else ./runs."""
    chosen = environment.get("GPTLITE_RUNS") or configured if configured == DEFAULT_FOLDER else configured
    return Path(chosen).expanduser()


@dataclass(frozen=True)
class Run:
    """A run by its folder. Making the object touches nothing."""

    path: Path

    @classmethod
    def create(cls, root: Path, name: str | None, base: str) -> Run:
        """A new folder `root/name`; without a name the first free one of base, base-2, base-3, ...

        Processes that race for a name get different ones. A RunError when an explicit name is in use or unfit.
        """
        cls.check_name(name, base)
        files.make_dirs(root)
        if name is None:
            return cls(next(path for path in _numbered(root, base) if files.create_dir(path)))
        if not files.create_dir(root / name):
            raise _in_use(root, name)
        return cls(root / name)

    @classmethod
    def check_name(cls, name: str | None, base: str) -> None:
        """A RunError for a name that is no name."""
        _check_name(name if name is not None else base, "--name" if name is not None else "run name from the config")

    @classmethod
    def check_free(cls, root: Path, name: str | None, base: str) -> None:
        """The RunError that `create` would raise for these names, without making anything."""
        cls.check_name(name, base)
        if name is not None and (root / name).exists():
            raise _in_use(root, name)

    @classmethod
    def claim(cls, root: Path, name: str) -> Run:
        """The run `root/name`, made when it is absent; `started` tells which. For `--continue`, which survives a
        kill between making the folder and writing into it."""
        _check_name(name, "--name")
        files.make_dirs(root)
        run = cls(root / name)
        if not files.create_dir(run.path) and not run.started and _visible(run.path):
            raise _no_run(run.path)
        return run

    @classmethod
    def open(cls, root: Path, name_or_path: str, *, unfinished: bool = False) -> Run:
        """The run of that name under `root`, or at that path; "latest" is the newest (the newest unfinished).

        A RunError that says what was looked for, and which runs there are.
        """
        if name_or_path == "latest":
            return cls.newest(root, unfinished=unfinished)
        with files.storage_errors(root / name_or_path, "read"):
            there = [path for path in (root / name_or_path, Path(name_or_path)) if name_or_path and path.exists()]
            for path in there:
                if (path / CONFIG).is_file():
                    return cls(path)
        if there:
            raise _no_run(there[0])
        names = [run.name for run in cls.all(root)]
        near = difflib.get_close_matches(name_or_path, names, n=1)
        known = f"did you mean {near[0]}?" if near else f"there are {', '.join(names[-5:])}"
        raise RunError(
            f"{root}: run = {name_or_path}: a run's name or folder; {known if names else 'there is none yet'}"
        )

    @classmethod
    def all(cls, root: Path) -> list[Run]:
        """Every run under `root`, oldest start first, ties by name; none when there is no such folder."""
        with files.storage_errors(root, "read"):
            paths = [path.parent for path in root.glob(f"*/{CONFIG}")]
        found = [cls(path) for path in paths if files.TEMP_MARK not in path.name]  # else half removed
        return sorted(found, key=lambda run: (run.started_at, run.name))

    @classmethod
    def newest(cls, root: Path, *, unfinished: bool = False) -> Run:
        """The run that started last; a RunError when there is none."""
        runs = [run for run in cls.all(root) if not (unfinished and run.finished)]
        if not runs:
            kind = "unfinished run" if unfinished else "run"
            raise RunError(f"{root}: run = latest: no {kind} there; start one with gptlite train, or name a run")
        return runs[-1]

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.resolve().name

    @property
    def handle(self) -> str:
        """What commands find it by: its name if it lies where they look for names, else its path."""
        return self.name if self.path.resolve().parent == runs_folder().resolve() else str(self.path)

    @property
    def checkpoints(self) -> Path:
        """The folder of checkpoints, whether it exists yet or not."""
        return self.path / "checkpoints"

    @property
    def started(self) -> bool:
        """Whether the run's config was written."""
        return (self.path / CONFIG).is_file()

    @property
    def started_at(self) -> float:
        """Seconds since 1970 of the start in run.json; of the folder's last change where run.json says nothing."""
        try:
            return datetime.fromisoformat(self.info["started_at"]).timestamp()
        except (RunError, KeyError, TypeError, ValueError, OverflowError):
            with files.storage_errors(self.path, "read"):
                return self.path.stat().st_mtime

    @property
    def finished(self) -> bool:
        """Whether training came to its end."""
        return (self.path / "finished.json").is_file()

    @property
    def diverged(self) -> bool:
        """Whether training ended because it went non-finite."""
        return (self.path / "diverged.json").is_file()

    @property
    def info(self) -> dict[str, Any]:
        """What run.json says."""
        return read_record(self.path / INFO)

    def recorded(self, key: str, kind: type[T]) -> T:
        """What run.json says of one thing; a RunError when it says nothing, or nothing of that kind."""
        value = self.info.get(key)
        if type(value) is not kind:
            raise RunError(f"{self.path / 'run.json'}: {key} = {value}: the run is damaged; start a new one")
        return value

    def config_text(self) -> str:
        """config.yaml as it was written."""
        path = self.path / CONFIG
        try:
            return path.read_bytes().decode()
        except (OSError, UnicodeDecodeError) as error:
            raise RunError(f"{path}: content = {error}: the run's config in UTF-8; the run is damaged") from error

    def write_config(self, text: str) -> None:
        """Write or replace config.yaml durably. With it the folder is a run."""
        files.replace(self.path / CONFIG, text.encode())

    def write_info(self, info: Mapping[str, Any]) -> None:
        """Write or replace run.json durably; `started_at` is now, unless `info` holds it (a resumed run keeps it)."""
        write_record(self.path / INFO, {"started_at": datetime.now(UTC).isoformat(), **info})

    def finish(self, info: Mapping[str, Any]) -> None:
        """Say durably that training came to its end, and with what."""
        write_record(self.path / "finished.json", {"finished_at": datetime.now(UTC).isoformat(), **info})

    @contextmanager
    def noting_divergence(self) -> Iterator[None]:
        """Say durably that training inside went non-finite, where it does."""
        try:
            yield
        except Diverged as error:
            write_record(self.path / "diverged.json", {"problem": str(error)})
            raise

    def reopen(self) -> None:
        """Take back how training ended: there is more to train."""
        for name in ("finished.json", "diverged.json"):
            files.remove_tree(self.path / name)

    def lock(self, holder: str = "gptlite train") -> AbstractContextManager[None]:
        """Hold the run as the only one who changes it; a RunError names who has it."""
        return files.lock(self.path / ".lock", holder)

    @property
    def locked(self) -> bool:
        """Whether someone holds it: a trainer."""
        return files.locked(self.path / ".lock")

    def remove(self) -> None:
        """Remove the run and all it kept. Only for the holder of the lock."""
        files.remove_tree(self.path)

    def remove_leftovers(self) -> list[Path]:
        """Remove what a killed trainer left unfinished. Only for the holder of the lock."""
        return [*files.remove_leftovers(self.path), *files.remove_leftovers(self.checkpoints)]


def _numbered(root: Path, base: str) -> Iterator[Path]:
    yield root / base
    for number in itertools.count(2):
        yield root / f"{base}-{number}"


def _in_use(root: Path, name: str) -> RunError:
    free = next(path.name for path in _numbered(root, name) if not path.exists())
    return RunError(
        f"--name = {name}: already used; continue it with --resume {shlex.quote(name)}, or take a free name such as "
        f"{shlex.quote(free)}"
    )


def _visible(path: Path) -> bool:
    """Whether a folder holds anything but what a start leaves that was killed before it wrote config.yaml."""
    with files.storage_errors(path, "read"):
        names = [each.name for each in path.iterdir()]
    return any(not (name.startswith(".") or files.TEMP_MARK in name or name == INFO) for name in names)


def _no_run(path: Path) -> RunError:
    if (path / "MANIFEST.json").is_file():
        return RunError(f"{path}: run = a checkpoint: the folder of a run; name {path.absolute().parent.parent.name}")
    return RunError(f"{path}: run = no {CONFIG} in it: the folder of a run; name one that gptlite train made")


def _check_name(name: str, where: str) -> None:
    problem = None
    if not name:
        problem = "it is empty"
    elif name.lower() in _RESERVED:
        problem = f"{' and '.join(_RESERVED)} have a meaning of their own"
    elif "/" in name or "\\" in name or not name.isprintable() or name != name.strip():
        problem = "no separators, control characters or outer spaces"
    elif name[0] in ".-":
        problem = "it may not begin with a dot or a dash"
    elif files.TEMP_MARK in name:
        problem = f"{files.TEMP_MARK} marks unfinished files"
    elif len(name.encode()) > _MAX_NAME_BYTES:
        problem = f"at most {_MAX_NAME_BYTES} bytes"
    if problem:
        shown = name if name.isprintable() and len(name) <= 40 else repr(name[:40])
        raise RunError(f"{where} = {shown}: the name of a folder, and {problem}; choose another --name")
