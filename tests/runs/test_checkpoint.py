"""Checkpoints come back bit for bit, or are noticed not to."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors
import torch
from file_faults import stop_after

from gptlite.errors import Damaged, RunError
from gptlite.runs.checkpoint import Checkpoint, prune, save_checkpoint, valid_checkpoints
from gptlite.runs.find import find_valid
from gptlite.storage import sealed
from gptlite.storage.sealed import FORMAT_VERSION, MANIFEST, write_folder, write_manifest

Save = Callable[..., Checkpoint]
FILES = ["MANIFEST.json", "config.json", "model.safetensors", "optimizer.safetensors", "state.json"]


def steps(folder: Path) -> list[int]:
    """The steps of the checkpoints of which every byte is as it was written."""
    whole = []
    for checkpoint in valid_checkpoints(folder):
        with contextlib.suppress(Damaged):
            whole.append(checkpoint.verified().step)
    return whole


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_tensors_and_state_come_back_exactly(save: Save, folder: Path) -> None:
    save(7, score=1.5)
    found = Checkpoint.open(folder / "step-00000007")
    assert (found.step, found.score, found.read_json("state.json")) == (7, 1.5, {"step": 7})
    model, optimizer = found.read_tensors("model.safetensors"), found.read_tensors("optimizer.safetensors")
    assert torch.equal(model["wte"], torch.full((3, 2), 7.0))
    assert model["bias"].dtype == torch.bfloat16
    assert optimizer["wte.exp_avg"].tolist() == [[0.0, 2.0, 4.0], [1.0, 3.0, 5.0]]  # it was a transposed view
    assert optimizer["wte.step"].item() == 7


def test_the_official_reader_opens_the_tensors_and_finds_what_transformers_asks_for(save: Save) -> None:
    with safetensors.safe_open(save(1).path / "model.safetensors", framework="np") as file:
        assert file.metadata() == {"format": "pt"}
        assert file.get_tensor("wte").tolist() == [[1.0, 1.0]] * 3


def test_equal_content_gives_equal_bytes_in_any_order_of_names(save: Save, tmp_path: Path) -> None:
    a, b = torch.zeros(3), torch.ones(2, 2)
    one = save_checkpoint(tmp_path / "1", 1, {}, {"m.safetensors": {"a": a, "b": b}})
    two = save_checkpoint(tmp_path / "2", 1, {}, {"m.safetensors": {"b": b, "a": a}})
    assert content(one.path) == content(two.path)


def test_a_valid_checkpoint_is_never_written_again(folder: Path) -> None:
    first = save_checkpoint(folder, 1, {"state.json": b"{}"}, {})
    before = (first.path / "state.json").stat()
    assert save_checkpoint(folder, 1, {"state.json": b"{ }"}, {}) == first
    after = (first.path / "state.json").stat()
    assert (after.st_ino, after.st_mtime_ns, after.st_size) == (before.st_ino, before.st_mtime_ns, before.st_size)


def test_a_damaged_checkpoint_of_the_same_step_is_replaced(save: Save, folder: Path) -> None:
    path = save(1).path / "model.safetensors"
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))  # the size still fits
    save(1)
    assert path.read_bytes() == data
    assert [each.name for each in folder.iterdir()] == ["step-00000001"]


def test_a_checkpoint_copied_alone_under_another_name_opens(save: Save, tmp_path: Path) -> None:
    (save(3).path).rename(tmp_path / "my favourite")
    assert Checkpoint.open(tmp_path / "my favourite").step == 3


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("left", [None, 0.0, 0.5])
def test_a_deleted_or_truncated_file_is_noticed_and_the_checkpoint_before_is_used(
    save: Save, folder: Path, name: str, left: float | None
) -> None:
    save(1)
    path = save(2).path / name
    path.unlink() if left is None else os.truncate(path, int(left * path.stat().st_size))
    lines: list[str] = []
    found = find_valid(folder, "latest", lines.append, lambda opened: opened)  # sizes suffice
    assert found is not None
    assert found.step == 1
    (line,) = lines
    assert line.startswith(f"{folder}: using step 1, since 1 checkpoint cannot be read: {path}: ")


def test_swapped_files_and_renamed_folders_are_noticed(save: Save, folder: Path) -> None:
    one, two = save(1).path, save(2).path
    (one / "model.safetensors").rename(folder / "x")
    (two / "model.safetensors").rename(one / "model.safetensors")
    (folder / "x").rename(two / "model.safetensors")
    assert steps(folder) == []
    two.rename(folder / "step-00000009")
    assert [each.step for each in valid_checkpoints(folder)] == [1]  # by name and sizes: 9 is not its step


def test_another_format_version_is_an_error_and_not_skipped(save: Save, folder: Path) -> None:
    save(1)
    later = save(2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sealed, "FORMAT_VERSION", FORMAT_VERSION + 1)
        (later.path / MANIFEST).unlink()
        write_manifest(later.path, later.fields, later.files)
    with pytest.raises(RunError, match=rf"MANIFEST\.json: another version .*: its format is {FORMAT_VERSION + 1}, and"):
        find_valid(folder, "latest", pytest.fail)


def test_an_unreadable_file_counts_as_damaged(save: Save, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(1), save(2)
    read_bytes = Path.read_bytes

    def bad_sector(path: Path) -> bytes:
        if path.parent.name == "step-00000002":
            raise OSError(errno.EIO, "Input/output error")
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", bad_sector)
    assert steps(folder) == [1]


@pytest.mark.parametrize("fields", [{}, {"step": "1", "score": None}, {"step": 1, "score": "low"}])
def test_a_sealed_folder_that_is_no_checkpoint_is_refused(tmp_path: Path, fields: dict[str, object]) -> None:
    write_folder(tmp_path / "prepared", fields, [("ids", b"")])
    with pytest.raises(Damaged, match=r"MANIFEST\.json: this folder is no checkpoint"):
        Checkpoint.open(tmp_path / "prepared")


def tensor_file(header: object, payload: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + payload


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x80\x05}.",  # a pickle
        struct.pack("<Q", 1 << 62) + b"{}",
        struct.pack("<Q", 99_000_000) + b"{}",
        tensor_file({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 400]}}, b"1234"),
        tensor_file({n: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]} for n in "ab"}, b"1234"),
        tensor_file({"a": {"dtype": "F32", "shape": [1 << 62, 1 << 62], "data_offsets": [0, 4]}}, b"1234"),
        tensor_file({"a": {"dtype": "F33", "shape": [1], "data_offsets": [0, 4]}}, b"1234"),
        tensor_file({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}, b"1234"),
        tensor_file([1, 2]),
    ],
    ids=["empty", "pickle", "huge", "long", "outside", "overlap", "overflow", "dtype", "negative", "list"],
)
def test_a_malicious_tensor_file_is_an_error_and_never_executed(tmp_path: Path, data: bytes) -> None:
    found = save_checkpoint(tmp_path, 1, {"model.safetensors": data}, {})
    with pytest.raises(RunError, match=r"model\.safetensors: not a valid safetensors file: "):
        found.read_tensors("model.safetensors")


def test_folders_with_other_names_are_not_checkpoints(save: Save, folder: Path) -> None:
    path = save(1).path
    for name in ["step-1", "step-00000002.tmp-9-ab", "step-00000003.bak", "Step-00000004", "step-00000005"]:
        (folder / name).mkdir()
    (folder / "step-00000006").touch()
    assert steps(folder) == [1]
    assert path.is_dir()


def test_prune_keeps_the_newest_and_the_best(save: Save, folder: Path) -> None:
    for step, score in [(1, 3.0), (2, 1.0), (3, 1.0), (4, None), (5, 2.0), (6, 2.0), (7, 2.5)]:
        save(step, score=score)
    prune(folder, 2, newest=7, say=pytest.fail)
    assert steps(folder) == [2, 6, 7]
    prune(folder, 1, newest=7, say=pytest.fail)
    assert steps(folder) == [2, 7]


def test_prune_counts_neither_what_is_damaged_nor_what_a_resume_rejected(save: Save, folder: Path) -> None:
    for step in (1, 2, 3, 4, 5):
        save(step)
    (folder / "step-00000002" / "state.json").unlink()
    late = folder / "step-00000005" / "model.safetensors"
    late.write_bytes(late.read_bytes()[:-1] + b"?")  # the size fits, so only the resume from 3 knew better
    prune(folder, 2, newest=4, say=pytest.fail)
    assert steps(folder) == [3, 4]
    assert len(list(folder.iterdir())) == 4


def test_a_failing_prune_is_a_warning(save: Save, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in (1, 2):
        save(step)

    stop_after(0, monkeypatch, PermissionError(13, ""), only=[os.rename])
    warnings: list[str] = []
    prune(folder, 1, newest=2, say=warnings.append)
    assert len(warnings) == 1
    assert warnings[0].startswith("old checkpoints were not removed: ")
    assert "step-00000001: cannot remove: Permission denied" in warnings[0]
    assert steps(folder) == [1, 2]
