"""Checkpoints: atomic, checksummed folders.

    checkpoints/step-00001000/   *.safetensors, JSON and tokenizer files, MANIFEST.json (written last)
    checkpoints/latest.json, best.json   pointers; only hints, since a scan of valid folders decides

A folder is written under a temporary name, each file is synced, then the folder is renamed; it is never overwritten. A
checkpoint is valid while its manifest matches: sizes always, sha256 where asked; whatever is read is checked. A save
calls `save_checkpoint`, `write_pointer` and `prune`, in this order: from the first save on, a valid checkpoint is on
disk at every instant.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gptlite.errors import RunError, StorageError
from gptlite.formatting import Say
from gptlite.runs.checkpoint_manifest import MANIFEST, dump_manifest, read_manifest
from gptlite.runs.checkpoint_manifest import Damaged as Damaged
from gptlite.storage import files
from gptlite.storage.json_files import parse_json, read_facts, seal, write_sealed

if TYPE_CHECKING:
    from torch import Tensor

_FOLDER = re.compile(r"step-(\d{8,})")


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that was valid when it was opened. A lower `score` is better; None is no score."""

    path: Path
    step: int
    score: float | None
    files: Mapping[str, Mapping[str, Any]]

    @classmethod
    def open(cls, path: Path, *, check_hashes: bool = True) -> Checkpoint:
        """Open the checkpoint in a folder of any name.

        Raise Damaged, naming the first file that changed, or RunError for an unknown format_version.
        """
        manifest = read_manifest(path)
        found = cls(path, manifest["step"], manifest["score"], manifest["files"])
        for name in found.files:
            found._check_size(name)
        return found.verified() if check_hashes else found

    def verified(self, skip: Collection[str] = ()) -> Checkpoint:
        """Return this checkpoint after checking the sha256 of its files but those to skip. Raise Damaged."""
        for name in sorted(self.files.keys() - set(skip)):
            self.check_hash(name)
        return self

    def _check_size(self, name: str) -> None:
        file, size = self.path / name, self.files[name]["size"]
        try:
            found = file.lstat().st_size
        except FileNotFoundError:
            raise Damaged("this file of the checkpoint is missing.", str(file)) from None
        except OSError as error:
            raise Damaged(f"this file of the checkpoint cannot be read: {error.strerror}.", str(file)) from error
        if found != size:
            raise Damaged(f"the file has {found} bytes, and {MANIFEST} says {size}.", str(file))

    def check_hash(self, name: str) -> None:
        """Raise Damaged where the content of a file is not what was written."""
        try:
            digest = files.file_sha256(self.path / name)
        except StorageError as error:  # such as a bad sector: an earlier checkpoint may be readable
            raise Damaged(error.problems) from error
        self._compare(name, digest)

    def _compare(self, name: str, digest: str) -> None:
        written = self.files[name]["sha256"]
        if digest != written:
            raise Damaged(
                f"the content of this file changed: its sha256 is {digest[:12]}..., and {MANIFEST} says "
                f"{written[:12]}...",
                str(self.path / name),
            )

    def read(self, name: str) -> bytes:
        """Return the content of a file after checking it. Raise Damaged."""
        if name not in self.files:
            known = ", ".join(sorted(self.files))
            raise RunError(f"this checkpoint has no {name}, only {known}. Use another checkpoint.", str(self.path))
        try:
            data = files.read_own(self.path / name, self.files[name]["size"])
        except OSError as error:
            raise Damaged(
                f"this file of the checkpoint cannot be read: {error.strerror}.", str(self.path / name)
            ) from error
        self._compare(name, hashlib.sha256(data).hexdigest())
        return data

    @property
    def digest(self) -> str:
        """A digest of the content of all files."""
        return seal({"step": self.step, "files": self.files})

    def read_model(self) -> dict[str, Tensor]:
        """Return the tensors of model.safetensors, on the CPU."""
        return self.read_tensors("model.safetensors")

    def read_optimizer(self) -> dict[str, Tensor]:
        """Return the tensors of optimizer.safetensors, on the CPU."""
        return self.read_tensors("optimizer.safetensors")

    def read_tensors(self, name: str) -> dict[str, Tensor]:
        """Return the tensors of a file, on the CPU. Raise Damaged when it is not a valid safetensors file."""
        from safetensors import SafetensorError
        from safetensors.torch import load

        try:
            return load(self.read(name))
        except (SafetensorError, KeyError, ValueError, RuntimeError) as error:
            reason = str(error).splitlines()[0][:100]
            raise Damaged(
                f"not a valid safetensors file: {reason}. Use another checkpoint.", str(self.path / name)
            ) from error

    @property
    def state(self) -> dict[str, Any]:
        """The object in state.json."""
        return self.read_json("state.json")

    def read_json(self, name: str) -> dict[str, Any]:
        """Return the object in a JSON file of this checkpoint."""
        return parse_json(self.read(name), self.path / name)


def save_checkpoint(
    folder: Path,
    step: int,
    contents: Mapping[str, bytes],
    tensors: Mapping[str, Mapping[str, Tensor]],
    *,
    score: float | None = None,
    replace: bool = False,
) -> Checkpoint:
    """Write the checkpoint of `step` into `folder`, durably. The folder of `folder` must exist.

    contents: bytes by file name. tensors: by name, for each safetensors file. Equal content gives equal bytes.
    A valid checkpoint of this step is kept, since a resumed run arrives at the same bits, unless it is to be replaced.
    Raise StorageError, with nothing half-written left behind.
    """
    final = folder / f"step-{step:08d}"
    if not replace:
        with contextlib.suppress(Damaged):
            return open_step(final, check_hashes=True)
    files.create_dir(folder)
    temp = files.temp_name(final)
    try:
        files.create_dir(temp)
        written = {name: _write(temp / name, contents[name]) for name in sorted(contents)}
        written |= {name: _write(temp / name, _safetensors(tensors[name])) for name in sorted(tensors)}
        files.write_new(temp / MANIFEST, dump_manifest(step, score, written))
        files.remove_tree(final)  # it is damaged or replaced
        files.publish(temp, final)
    except BaseException:
        with contextlib.suppress(StorageError):  # the first error is reported
            files.remove_tree(temp)
        raise
    return Checkpoint(final, step, score, written)


def _write(path: Path, data: bytes) -> dict[str, Any]:
    size, sha256 = files.write_new(path, data)
    return {"size": size, "sha256": sha256}


def _safetensors(tensors: Mapping[str, Tensor]) -> bytes:
    from safetensors.torch import save

    # transformers requires this entry.
    return save({name: tensors[name].detach().cpu().contiguous() for name in sorted(tensors)}, {"format": "pt"})


def open_step(path: Path, *, check_hashes: bool) -> Checkpoint:
    """Open a folder that is named by its step. Raise Damaged when the manifest says another step."""
    found = Checkpoint.open(path, check_hashes=check_hashes)
    if path.name != f"step-{found.step:08d}":
        where = str(path / MANIFEST)
        raise Damaged(f"step is {found.step}, which is not that of the folder. The folder was renamed.", where)
    return found


def step_folders(folder: Path) -> list[Path]:
    """Return the folders with the name of a checkpoint, newest step first; none when there is no such folder."""
    try:
        with files.storage_errors(folder, "read"):
            named = [name for name in os.listdir(folder) if _FOLDER.fullmatch(name)]
    except StorageError:
        if not os.path.lexists(folder):
            return []
        raise
    return [folder / name for name in sorted(named, key=lambda name: int(name[5:]), reverse=True)]


def scan_checkpoints(folder: Path, *, check_hashes: bool) -> Iterator[Checkpoint | Damaged]:
    """Yield each checkpoint, or what is wrong with it, newest step first. Lazy: folders are opened one by one."""
    for path in step_folders(folder):
        try:
            yield open_step(path, check_hashes=check_hashes)
        except Damaged as damage:
            yield damage


def valid_checkpoints(folder: Path, *, check_hashes: bool = False) -> list[Checkpoint]:
    """Return every valid checkpoint in `folder` by ascending step; none when there is no such folder."""
    return [each for each in scan_checkpoints(folder, check_hashes=check_hashes) if isinstance(each, Checkpoint)][::-1]


def write_pointer(folder: Path, name: str, step: int, extra: Mapping[str, Any] | None = None) -> None:
    """Write `name`.json (name: "latest" or "best"), durably: its step, its folder and `extra`."""
    write_sealed(folder / f"{name}.json", {**(extra or {}), "step": step, "path": f"step-{step:08d}"})


def read_pointer(folder: Path, name: str) -> int | None:
    """Return the step in `name`.json; None where the file is missing or damaged, since it is only a hint."""
    try:
        step = read_facts(folder / f"{name}.json").get("step")
    except RunError:
        return None
    return step if type(step) is int else None


def sort_key(each: Checkpoint, hint: int | None) -> tuple[float, bool, int]:
    """Return a sort key, best first: by score, then step; those without a score come last, step `hint` before newer."""
    if each.score is not None:
        return each.score, False, each.step
    return math.inf, each.step != hint, -each.step


def prune(folder: Path, keep: int, protect: Collection[int] = (), *, newest: int, warn: Say) -> None:
    """Remove valid checkpoints up to step `newest`, the one just saved. Keep the last `keep`, the best and `protect`.

    Damaged folders, and later ones that a resume rejected, are neither counted nor removed. A failure is a line to
    `warn`, since the save itself succeeded.
    """
    try:
        valid = [each for each in valid_checkpoints(folder)[::-1] if each.step <= newest]
        scored = [each for each in valid if each.score is not None]
        kept = {*protect, *(each.step for each in valid[:keep])}
        kept |= {min(scored, key=lambda each: sort_key(each, None)).step} if scored else set()
        for each in valid[::-1]:
            if each.step not in kept:
                files.remove_tree(each.path)
    except (StorageError, RunError) as problem:
        warn(f"old checkpoints were not removed: {problem}")
