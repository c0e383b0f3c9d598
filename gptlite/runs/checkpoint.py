"""Checkpoints: folders that are whole or absent.

    checkpoints/step-00001000/   *.safetensors, JSON and tokenizer files, MANIFEST.json (written last)
    checkpoints/latest.json, best.json   hints for people and for noticing a loss; a scan of valid folders decides

A folder is written under a temporary name, each file synced, then renamed; it is never overwritten. It counts only
while its manifest matches: sizes always, sha256 where asked. The order of a save is `save_checkpoint`,
`write_pointer`, `prune`: at every instant one valid checkpoint is on disk once the first is.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gptlite import files
from gptlite.errors import RunError, StorageError
from gptlite.json_files import read_json, read_record, write_record
from gptlite.runs.checkpoint_manifest import MANIFEST, dump_manifest, read_manifest
from gptlite.runs.checkpoint_manifest import Damaged as Damaged

if TYPE_CHECKING:
    from torch import Tensor

_FOLDER = re.compile(r"step-(\d{8,})")


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint whose manifest matched when it was opened; the best has the lowest `score` (None: not evaluated)."""

    path: Path
    step: int
    score: float | None
    files: Mapping[str, Mapping[str, Any]]

    @classmethod
    def open(cls, path: Path, *, check_hashes: bool = True) -> Checkpoint:
        """The checkpoint in a folder of any name.

        Damaged names the first file that is not what was written; RunError an unknown format_version.
        """
        manifest = read_manifest(path)
        found = cls(path, manifest["step"], manifest["score"], manifest["files"])
        for name, record in found.files.items():
            found._check(path / name, record["size"], record["sha256"] if check_hashes else None)
        return found

    @staticmethod
    def _check(file: Path, size: int, sha256: str | None) -> None:
        try:
            there = file.stat().st_size
        except FileNotFoundError:
            raise Damaged(f"{file}: file = missing: {size} bytes as {MANIFEST} says") from None
        except OSError as error:
            raise Damaged(f"{file}: file = {error.strerror}: {size} bytes as {MANIFEST} says") from error
        if there != size:
            raise Damaged(f"{file}: size = {there} bytes: {size} as {MANIFEST} says")
        if sha256 is None:
            return
        try:
            digest = files.sha256_of(file)
        except StorageError as error:  # a bad sector under it, say: the checkpoint before may do
            raise Damaged(error.problems) from error
        if digest != sha256:
            known = f"{sha256[:12]}... as {MANIFEST} says"
            raise Damaged(f"{file}: sha256 = {digest[:12]}...: {known}; its content changed")

    def read_model(self) -> dict[str, Tensor]:
        """The tensors of model.safetensors, on the CPU."""
        return self.read_tensors("model.safetensors")

    def read_optimizer(self) -> dict[str, Tensor]:
        """The tensors of optimizer.safetensors, on the CPU."""
        return self.read_tensors("optimizer.safetensors")

    def read_tensors(self, name: str) -> dict[str, Tensor]:
        """The tensors of a file of this checkpoint, on the CPU; Damaged when it is no valid safetensors file."""
        from safetensors import SafetensorError
        from safetensors.torch import load

        path = self._file(name)
        try:
            return load(path.read_bytes())
        except (SafetensorError, OSError, KeyError, ValueError, RuntimeError) as error:
            reason = str(error).splitlines()[0][:100]
            raise Damaged(f"{path}: content = {reason}: a safetensors file; use another checkpoint") from error

    @property
    def state(self) -> dict[str, Any]:
        """The object in state.json."""
        return self.read_json("state.json")

    def read_json(self, name: str) -> dict[str, Any]:
        """The object in a JSON file of this checkpoint."""
        return read_json(self._file(name))

    def _file(self, name: str) -> Path:
        if name not in self.files:
            raise RunError(
                f"{self.path}: file = {name}: one of {', '.join(sorted(self.files))}; use another checkpoint"
            )
        return self.path / name


def save_checkpoint(
    folder: Path,
    step: int,
    contents: Mapping[str, bytes],
    tensors: Mapping[str, Mapping[str, Tensor]],
    *,
    score: float | None = None,
) -> Checkpoint:
    """Write the checkpoint of `step` into `folder`; it survives a power cut when this returns.

    `contents` (bytes by file name) are written as they are, `tensors` as safetensors; equal content gives equal bytes.
    A valid checkpoint of that step is kept: a resumed run arrives at the same bits. A StorageError leaves nothing
    half-written.
    """
    final = folder / f"step-{step:08d}"
    with contextlib.suppress(Damaged):
        return open_step(final, check_hashes=True)
    files.make_dirs(folder)
    temp = files.temp_name(final)
    try:
        files.create_dir(temp)
        written = {name: _write(temp / name, contents[name]) for name in sorted(contents)}
        written |= {name: _write(temp / name, _safetensors(tensors[name])) for name in sorted(tensors)}
        files.write_new(temp / MANIFEST, dump_manifest(step, score, written))
        files.remove_tree(final)  # only ever a damaged one
        files.publish(temp, final)
    except BaseException:
        with contextlib.suppress(StorageError):  # the first error is the one to report
            files.remove_tree(temp)
        raise
    return Checkpoint(final, step, score, written)


def _write(path: Path, data: bytes) -> dict[str, Any]:
    size, sha256 = files.write_new(path, data)
    return {"size": size, "sha256": sha256}


def _safetensors(tensors: Mapping[str, Tensor]) -> bytes:
    from safetensors.torch import save

    # transformers refuses a file without this entry
    return save({name: tensors[name].detach().cpu().contiguous() for name in sorted(tensors)}, {"format": "pt"})


def open_step(path: Path, *, check_hashes: bool) -> Checkpoint:
    """As Checkpoint.open, for a folder named by its step; Damaged when the manifest is another step's."""
    found = Checkpoint.open(path, check_hashes=check_hashes)
    if path.name != f"step-{found.step:08d}":
        raise Damaged(f"{path / MANIFEST}: step = {found.step}: the step of its folder; the folder was renamed")
    return found


def step_folders(folder: Path) -> list[Path]:
    """Folders that are called like checkpoints, newest step first."""
    with files.storage_errors(folder, "read"):
        named = [path for path in folder.glob("step-*") if _FOLDER.fullmatch(path.name)]
    return sorted(named, key=lambda path: int(path.name[5:]), reverse=True)


def scan(folder: Path, *, check_hashes: bool) -> Iterator[Checkpoint | Damaged]:
    """Each checkpoint, or what is wrong with it, newest step first; looked at only when asked for the next."""
    for path in step_folders(folder):
        try:
            yield open_step(path, check_hashes=check_hashes)
        except Damaged as problem:
            yield problem


def valid_checkpoints(folder: Path, *, check_hashes: bool = False) -> list[Checkpoint]:
    """Every valid checkpoint in `folder`, ascending; none when there is no such folder."""
    return [each for each in scan(folder, check_hashes=check_hashes) if isinstance(each, Checkpoint)][::-1]


def write_pointer(folder: Path, name: str, step: int, extra: Mapping[str, Any] | None = None) -> None:
    """Say durably in `name`.json (name: "latest" or "best") which step it is, and what else is worth knowing of it."""
    write_record(folder / f"{name}.json", {**(extra or {}), "step": step, "path": f"step-{step:08d}"})


def pointed_at(folder: Path, name: str) -> int | None:
    """The step that `name`.json names; None where it says nothing that can be used: it is a hint, a scan decides."""
    try:
        step = read_record(folder / f"{name}.json").get("step")
    except RunError:
        return None
    return step if type(step) is int else None


def rank(each: Checkpoint, hint: int | None) -> tuple[float, bool, int]:
    """Sorts from the best on: by score, the earlier of equals; then those without, step `hint` before newer ones."""
    if each.score is not None:
        return each.score, False, each.step
    return math.inf, each.step != hint, -each.step


def prune(folder: Path, keep: int, protect: Collection[int] = (), *, newest: int, warn: Callable[[str], None]) -> None:
    """Remove the valid checkpoints up to step `newest` but its last `keep`, the best, and the steps in `protect`.

    `newest` is the step just saved. Damaged folders, and those after `newest` (a resume has passed them over), neither
    count nor go. A failure takes a line to `warn`: the save has succeeded.
    """
    try:
        valid = [each for each in scan(folder, check_hashes=False) if isinstance(each, Checkpoint)]
        valid = [each for each in valid if each.step <= newest]
        scored = [each for each in valid if each.score is not None]
        kept = {*protect, *(each.step for each in valid[:keep])}
        kept |= {min(scored, key=lambda each: rank(each, None)).step} if scored else set()
        for each in valid[::-1]:
            if each.step not in kept:
                files.remove_tree(each.path)
    except (StorageError, RunError) as problem:
        warn(f"old checkpoints stay: {problem}")
