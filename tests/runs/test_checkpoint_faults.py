"""A save and a prune interrupted at every call to the disk: by a kill, by an error, by a power cut, by a full disk."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gptlite.errors import StorageError
from gptlite.runs.checkpoint import prune, save_checkpoint, valid_checkpoints, write_pointer
from gptlite.runs.find import find_valid
from gptlite.storage import files
from gptlite.storage.sealed import read_sealed

SIZE = 3000
FILES = {"model.safetensors": b"\4" * SIZE, "optimizer.safetensors": b"o" * SIZE, "state.json": b"{}"}
FILES["tokenizer/vocab.json"] = b"{}"


def save_and_prune(folder: Path, step: int, score: float, say: Callable[[str], None] = pytest.fail) -> None:
    """What training does at a step that is due and the best so far, in its order; two of three checkpoints stay."""
    save_checkpoint(folder, step, FILES, {}, score=score)
    write_pointer(folder, "latest", step)
    write_pointer(folder, "best", step)
    prune(folder, 1, newest=step, say=say)


def begin(folder: Path) -> None:
    """Steps 1 (to be pruned by the next save), 2 and 3."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    for step in (1, 2, 3):
        save_checkpoint(folder, step, {"model.safetensors": bytes([step]) * SIZE}, {}, score=5.0 - step)
    write_pointer(folder, "latest", 3)
    write_pointer(folder, "best", 3)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the waiting of fsync, where the system survives and only the process does not."""
    monkeypatch.setattr(files, "_fsync", lambda fd: None)


def calls_of_a_save(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of all calls to the disk, from a save that nothing interrupts."""
    names: list[str] = []

    def syscall(call: Callable[..., Any], *args: Any) -> Any:
        names.append(call.__name__)
        return call(*args)

    begin(folder)
    with monkeypatch.context() as patch:
        patch.setattr(files, "syscall", syscall)
        save_and_prune(folder, 4, 1.0)
    return names


def check_survivors(folder: Path) -> int:
    """Assert that the newest or the one before loads, quietly, that pointers are readable, and name its step."""
    found, best = (find_valid(folder, which, pytest.fail) for which in ("latest", "best"))
    assert found is not None
    assert found == best
    assert found.step in (3, 4)
    assert (found.path / "model.safetensors").read_bytes() == bytes([found.step]) * SIZE
    assert {read_sealed(folder / f"{name}.json")["step"] for name in ("latest", "best")} <= {3, 4}
    named = {path for path in folder.glob("step-*") if files.TEMP_MARK not in path.name}
    assert named == {checkpoint.verified().path for checkpoint in valid_checkpoints(folder)}  # none is half there
    return found.step


KILLS = f"""
import json, os, shutil, signal, sys
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parent)!r})
from gptlite.storage import files
from test_checkpoint_faults import begin, save_and_prune

root, kills = Path(sys.argv[1]), json.loads(sys.argv[2])
files._fsync = lambda fd: None
begin(root / "fresh")

def killed_at(at, half):
    made = 0
    def syscall(call, *args):
        nonlocal made
        made += 1
        if made == at:
            if half and call is os.write:
                os.write(args[0], args[1][: len(args[1]) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*args)
    return syscall

for at, half in kills:
    folder = root / f"{{half}}-{{at}}"
    shutil.copytree(root / "fresh", folder)
    child = os.fork()
    if not child:
        files.syscall = killed_at(at, half)
        save_and_prune(folder, 4, 1.0)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL, at
"""


@pytest.mark.usefixtures("quick")
def test_a_kill_at_any_call_leaves_the_newest_or_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = calls_of_a_save(tmp_path / "whole", monkeypatch)
    assert len(names) > 40
    kills = [(at, half) for at, name in enumerate(names, 1) for half in range(1 + (name == "write"))]
    assert len(kills) > len(names)
    subprocess.run([sys.executable, "-c", KILLS, tmp_path / "killed", json.dumps(kills)], check=True)
    survived = []
    for at, half in kills:
        folder = tmp_path / "killed" / f"{half}-{at}"
        survived.append(check_survivors(folder))
        files.remove_leftovers(folder)
        save_and_prune(folder, 4, 1.0)  # what the resumed run does
        assert check_survivors(folder) == 4
        assert {path.name for path in folder.iterdir()} == {"step-00000004", "latest.json", "best.json"}
    assert set(survived) == {3, 4}


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EACCES])
@pytest.mark.parametrize("lasting", [False, True], ids=["once", "from-then-on"])
def test_an_error_at_any_call_is_reported_and_leaves_a_valid_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, lasting: bool
) -> None:
    names = calls_of_a_save(tmp_path / "whole", monkeypatch)
    begin(tmp_path / "fresh")
    for at in range(len(names)):
        folder = tmp_path / str(at)
        shutil.copytree(tmp_path / "fresh", folder)
        made, problems = 0, []

        def syscall(call: Callable[..., Any], *args: Any, at: int = at) -> Any:
            nonlocal made
            made += 1
            if made == at + 1 or (lasting and made > at):
                raise OSError(number, os.strerror(number))
            return call(*args)

        with monkeypatch.context() as patch:
            patch.setattr(files, "syscall", syscall)
            try:
                save_and_prune(folder, 4, 1.0, problems.append)
            except StorageError as error:
                problems.append(str(error))
        assert len(problems) == 1, names[at]
        assert str(folder) in problems[0]
        assert os.strerror(number) in problems[0]
        check_survivors(folder)


LIMITED = """
import resource, sys
from pathlib import Path
from gptlite.errors import StorageError
from gptlite.runs.checkpoint import save_checkpoint

folder = Path(sys.argv[1])
for limit in range(0, 4000, 200):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        save_checkpoint(folder, 2, {"model.safetensors": b"m" * 3000, "state.json": b"{}"}, {})
        print(limit, "saved")
    except StorageError as error:
        print(limit, error)
"""


def test_a_real_limit_on_file_sizes_is_reported_and_leaves_nothing_half_done(tmp_path: Path) -> None:
    begin(tmp_path)
    shutil.rmtree(tmp_path / "step-00000002")
    before = sorted(tmp_path.rglob("*"))
    done = subprocess.run([sys.executable, "-c", LIMITED, tmp_path], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    refused = [line for line in lines if "cannot write: File too large. The system limits the size of files" in line]
    assert [*refused, "3000 saved"] == lines[: len(refused) + 1]
    assert len(refused) == 15
    files.remove_tree(tmp_path / "step-00000002")
    assert sorted(tmp_path.rglob("*")) == before


class Inode:
    """A file or a folder, as the system shows it (`now`) and as the disk holds it (`synced`)."""

    def __init__(self, content: Any) -> None:
        self.now = self.synced = content


class Disk:
    """A model of what a power cut leaves: contents as of the file's last fsync, names as of their folder's, or later.

    `syscall` stands in for files.syscall, and calls `before_each` first.
    """

    def __init__(self, root: Path, before_each: Callable[[], None]) -> None:
        self.top, self.root, self.before_each = root, self._load(root), before_each
        self.opened: dict[int, Inode] = {}

    def _load(self, path: Path) -> Inode:
        if path.is_file():
            return Inode(path.read_bytes())
        return Inode({entry.name: self._load(entry) for entry in path.iterdir()})

    def _at(self, path: Path) -> Inode:
        inode = self.root
        for name in path.relative_to(self.top).parts:
            inode = inode.now[name]
        return inode

    def syscall(self, call: Callable[..., Any], *args: Any) -> Any:
        self.before_each()
        name = call.__name__
        done = None if name == "_fsync" else call(*args)  # the model does not need the wait
        if name == "_fsync":
            self.opened[args[0]].synced = self.opened[args[0]].now
        elif name == "write":
            self.opened[args[0]].now += bytes(args[1][:done])
        elif name == "open":
            if args[1] & os.O_CREAT:
                self._name(args[0], Inode(b""))
            self.opened[done] = self._at(args[0])
        elif name == "mkdir":
            self._name(args[0], Inode({}))
        elif name in ("rename", "replace"):
            moved = self._at(args[0])
            self._name(args[0], None)
            self._name(args[1], moved)
        elif name in ("unlink", "rmtree"):
            self._name(args[0], None)
        else:
            raise AssertionError(name)
        return done

    def _name(self, path: Path, inode: Inode | None) -> None:
        folder = self._at(path.parent)
        others = {name: other for name, other in folder.now.items() if name != path.name}
        folder.now = others | ({path.name: inode} if inode else {})

    def cut(self, target: Path, late: tuple[str, ...], inode: Inode | None = None) -> None:
        """Write what a cut leaves below `target`; `late` says what reached the disk without an fsync."""
        inode = inode or self.root
        if isinstance(inode.now, bytes):
            target.write_bytes(inode.now if "contents" in late else inode.synced)
            return
        target.mkdir()
        kind = "names" if inode is self.root else "names below"
        for name, entry in (inode.now if kind in late else inode.synced).items():
            self.cut(target / name, late, entry)


def test_a_power_cut_at_any_call_leaves_the_newest_or_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = ("names", "names below", "contents")
    survived = []

    def cut_now() -> None:
        for bits in range(8):
            target = tmp_path / f"{len(survived)}"
            disk.cut(target, tuple(kind for i, kind in enumerate(kinds) if bits >> i & 1))
            survived.append(check_survivors(target))

    begin(tmp_path / "live")
    disk = Disk(tmp_path / "live", cut_now)
    with monkeypatch.context() as patch:
        patch.setattr(files, "syscall", disk.syscall)
        save_checkpoint(tmp_path / "live", 4, FILES, {}, score=1.0)
        cut_now()
        assert survived[:8] == [3] * 8
        assert survived[-8:] == [4] * 8  # saved means saved
        save_and_prune(tmp_path / "live", 4, 1.0)
    cut_now()
    assert survived[-8:] == [4] * 8
