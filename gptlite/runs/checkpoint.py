"""Checkpoints: sealed folders that are written whole. Only one without its evaluation is ever replaced.

    checkpoints/step-00001000/   *.safetensors, JSON and tokenizer files, MANIFEST.json (written last)
    checkpoints/latest.json, best.json   pointers; only hints, since a scan of valid folders decides

A checkpoint is valid while its manifest matches: sizes always, sha256 where asked; whatever is read is checked. A save
calls `save_checkpoint`, `write_pointer` and `prune`, in this order: from the first save on, a valid checkpoint is on
disk at every instant.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from gptlite.errors import Damaged, RunError, StorageError
from gptlite.formatting import Say
from gptlite.storage import files
from gptlite.storage.sealed import MANIFEST, SealedFolder, read_sealed, write_folder, write_sealed

if TYPE_CHECKING:
    from torch import Tensor

ADVICE = "Use another checkpoint."
_FOLDER = re.compile(r"step-(\d{8,})")


class Checkpoint(SealedFolder):
    """A checkpoint that was valid when it was opened."""

    @classmethod
    def open(cls, path: Path, advice: str = ADVICE, *, sizes: bool = True) -> Self:
        """Open the checkpoint in a folder of any name. sizes: check that of each file.

        Raise Damaged, naming the first file that changed, or RunError for another format version.
        """
        opened = super().open(path, advice, sizes=sizes)
        match opened.fields:
            case {"step": int(), "score": None | int() | float()}:
                return opened
        raise opened.damaged(MANIFEST, "this folder is no checkpoint: it has no step")

    @property
    def step(self) -> int:
        """The number of updates before it."""
        return int(self.fields["step"])

    @property
    def score(self) -> float | None:
        """What it was evaluated at, lower is better; None where it was not."""
        score: float | None = self.fields["score"]
        return score

    def read_tensors(self, name: str) -> dict[str, Tensor]:
        """Return the tensors of a file, on the CPU. Raise Damaged when it is not a valid safetensors file."""
        from safetensors import SafetensorError
        from safetensors.torch import load

        try:
            return load(self.read(name))
        except (SafetensorError, KeyError, ValueError, RuntimeError) as error:
            reason = str(error).splitlines()[0][:100]
            raise self.damaged(name, f"not a valid safetensors file: {reason}") from error


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
    path = folder / f"step-{step:08d}"
    if not replace:
        with contextlib.suppress(Damaged):
            return open_step(path).verified()
    from safetensors.torch import save

    files.create_dir(folder)
    saved = (  # one at a time; transformers requires the format
        (name, save({key: named[key].detach().cpu().contiguous() for key in sorted(named)}, {"format": "pt"}))
        for name, named in sorted(tensors.items())
    )
    fields = {"step": step, "score": score}
    written = write_folder(path, fields, itertools.chain(sorted(contents.items()), saved))
    return Checkpoint(path, fields, written, ADVICE)


def open_step(path: Path) -> Checkpoint:
    """Open a folder that is named by its step. Raise Damaged when the manifest says another step."""
    opened = Checkpoint.open(path)
    if path.name != f"step-{opened.step:08d}":
        raise opened.damaged(MANIFEST, f"the folder was renamed: this is the checkpoint of step {opened.step}")
    return opened


def step_folders(folder: Path) -> list[Path]:
    """Return the folders with the name of a checkpoint, newest step first; none when there is no such folder."""
    if not os.path.lexists(folder):
        return []
    with files.storage_errors(folder, "read"):
        named = [name for name in os.listdir(folder) if _FOLDER.fullmatch(name)]
    return [folder / name for name in sorted(named, key=lambda name: int(name[5:]), reverse=True)]


def scan_checkpoints(folder: Path) -> Iterator[Checkpoint | Damaged]:
    """Yield each checkpoint, or what is wrong with it, newest step first. Lazy: folders are opened one by one."""
    for path in step_folders(folder):
        try:
            yield open_step(path)
        except Damaged as damage:
            if os.path.lexists(path):  # else pruned meanwhile by the training of this run
                yield damage


def valid_checkpoints(folder: Path) -> list[Checkpoint]:
    """Return every checkpoint in `folder` whose files have their sizes, by ascending step."""
    return [opened for opened in scan_checkpoints(folder) if isinstance(opened, Checkpoint)][::-1]


def write_pointer(folder: Path, name: str, step: int, extra: Mapping[str, Any] | None = None) -> None:
    """Write `name`.json (name: "latest" or "best"), durably: its step, its folder and `extra`."""
    write_sealed(folder / f"{name}.json", {**(extra or {}), "step": step, "path": f"step-{step:08d}"})


def read_pointer(folder: Path, name: str) -> int | None:
    """Return the step in `name`.json; None where the file is missing or damaged, since it is only a hint."""
    try:
        step = read_sealed(folder / f"{name}.json").get("step")
    except RunError:
        return None
    return step if type(step) is int else None


def prune(folder: Path, keep: int, *, newest: int, say: Say) -> None:
    """Remove valid checkpoints up to step `newest`, the one just saved. Keep the last `keep` and the best.

    Damaged folders, and later ones that a resume rejected, are neither counted nor removed. A failure is a line to
    `say`, since the save itself succeeded.
    """
    try:
        valid = [checkpoint for checkpoint in valid_checkpoints(folder) if checkpoint.step <= newest]
        scored = [(checkpoint.score, checkpoint.step) for checkpoint in valid if checkpoint.score is not None]
        kept = {*(checkpoint.step for checkpoint in valid[-keep:]), *(step for _, step in sorted(scored)[:1])}
        for checkpoint in valid:
            if checkpoint.step not in kept:
                files.remove_tree(checkpoint.path)
    except (StorageError, RunError) as problem:
        say(f"old checkpoints were not removed: {problem}")
