"""Damage to a run's files: what decides a result is refused, logs warn, hints have no effect, nothing else changes."""

from __future__ import annotations

import hashlib
import json
import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import training_runs as launch
from safetensors.torch import load, save
from training_runs import Crash, Lines, assert_same_end, crash_at, final, numbers, start

from gptlite.compute import distributed
from gptlite.config.schema import RunConfig
from gptlite.errors import ConfigError, Diverged, RunError, StorageError, UserError
from gptlite.loggers import metrics
from gptlite.runs.checkpoint import valid_checkpoints
from gptlite.runs.run import Run
from gptlite.storage.sealed import FileRecord, read_sealed, write_manifest
from gptlite.training import loop, run_info, verify
from gptlite.training.verify import check_run

DECIDING = ["config.yaml", "run.json"]
HINTS = ["finished.json", "checkpoints/latest.json", "checkpoints/best.json", ".lock"]
LOGS = ["metrics.jsonl", "samples.jsonl"]
TENSORS = ["model.safetensors", "optimizer.safetensors"]


def contents(folder: Path) -> dict[str, str]:
    """The digest of every file but the lock, which every command writes."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != ".lock"]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture(scope="module")
def whole(tiny: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return start(tiny, tmp_path_factory.mktemp("whole"), "run")


@pytest.fixture(scope="module")
def cut_once(tiny: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run that ended in its tenth update, with checkpoints of steps 4 and 8."""
    root = tmp_path_factory.mktemp("cut")
    with pytest.MonkeyPatch.context() as patch:
        crash_at(patch, 9)
        with pytest.raises(Crash):
            start(tiny, root, "run")
    return Run(root / "run")


@pytest.fixture(scope="module")
def other(tiny: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of the same text with another seed and learning rate."""
    return start(tiny.with_values({"run.seed": 5, "train.lr": 0.01}), tmp_path_factory.mktemp("other"), "run")


@pytest.fixture
def cut(cut_once: Run, tmp_path: Path) -> Run:
    shutil.copytree(cut_once.path, tmp_path / "run")
    return Run(tmp_path / "run")


def refused(run: Run, match: str, error: type[UserError] = RunError) -> None:
    """Resuming is refused and changes nothing."""
    before = contents(run.path)
    with pytest.raises(error, match=match):
        launch.resume(run)
    assert contents(run.path) == before


@pytest.mark.parametrize("with_pointers", [True, False])
def test_checkpoints_that_are_gone_are_said_to_be_gone_and_nothing_starts_anew(tiny, cut, with_pointers):
    for folder in cut.checkpoints.glob("step-*"):
        shutil.rmtree(folder)
    if not with_pointers:
        shutil.rmtree(cut.checkpoints)
    refused(cut, "the checkpoints of this run are gone, although it was trained. Put them back, or start a new run")
    with pytest.raises(RunError, match="are gone"):
        launch.resume_or_start(tiny, root=cut.path.parent, name="run")


def test_checkpoints_that_are_dangling_links_or_cannot_be_listed_are_not_taken_for_none(cut, monkeypatch):
    for folder in cut.checkpoints.glob("step-*"):
        shutil.rmtree(folder)
        folder.symlink_to("nowhere")
    refused(cut, "no checkpoint can be read")

    def listdir(path: Any) -> list[str]:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("gptlite.runs.checkpoint.os.listdir", listdir)
    with pytest.raises(StorageError, match="cannot read: Permission denied"):
        launch.resume(cut)


def test_a_run_that_was_killed_before_its_first_checkpoint_starts_again(tiny, tmp_path, monkeypatch, whole):
    with monkeypatch.context() as patch:
        patch.setattr("gptlite.training.trainer.save_checkpoint", crash)
        with pytest.raises(Crash):
            start(tiny, tmp_path, "run")
    run = Run(tmp_path / "run")
    assert (run.path / "samples.jsonl").stat().st_size > 0
    launch.resume(run)
    assert_same_end(whole, run)


def crash(*args: object, **kwargs: object) -> None:
    raise Crash


def test_weights_that_are_not_finite_are_never_saved_and_the_last_good_state_stays(tiny, tmp_path):
    cfg = tiny.with_values(
        {
            **{"train.lr": 1e38, "train.warmup_steps": 0, "train.optimizer": "adamw"},
            **{"save.every": 1, "save.keep": 1, "eval.every": 100},
        }
    )
    with pytest.raises(Diverged, match=r"step 1: \S+ has values that are not finite. Start a new run with a lower"):
        start(cfg, tmp_path, "w")
    run = Run(tmp_path / "w")
    assert [saved.verified().step for saved in valid_checkpoints(run.checkpoints)] == [0]
    facts = read_sealed(run.path / "diverged.json")
    assert (facts["step"], facts["lr"], facts["last_checkpoint"]) == (1, 1e38, 0)


@pytest.mark.parametrize("step_before", [4, 0])
def test_a_checkpoint_that_is_not_finite_is_passed_over_for_the_one_before(tiny, tmp_path, whole, step_before):
    with pytest.MonkeyPatch.context() as patch:
        crash_at(patch, step_before + 5)
        with pytest.raises(Crash):
            start(tiny, tmp_path, "run")
    cut = Run(tmp_path / "run")
    newest = final(cut)
    tensors = load((newest.path / "optimizer.safetensors").read_bytes())
    name = max(tensors, key=lambda name: tensors[name].numel())
    tensors[name].view(-1)[-1] = torch.inf
    data = save(tensors, {"format": "pt"})
    (newest.path / "optimizer.safetensors").write_bytes(data)
    (newest.path / "MANIFEST.json").unlink()
    record = FileRecord(len(data), hashlib.sha256(data).hexdigest())
    write_manifest(newest.path, newest.fields, {**newest.files, "optimizer.safetensors": record})
    listener = Lines()
    launch.resume(cut, listener=listener)
    warning = f"using step {step_before}, since 1 checkpoint cannot be read: {newest.path}: {name} has values"
    assert any(warning in line for line in listener.heard)
    assert_same_end(whole, cut)


def test_an_edited_config_is_refused_and_both_digests_are_named(cut):
    text = (cut.path / "config.yaml").read_text()
    assert "lr: 0.02" in text
    (cut.path / "config.yaml").write_text(text.replace("lr: 0.02", "lr: 0.09"))
    refused(
        cut,
        r"config\.yaml: this file changed after it was written: its sha256 was \w{12} and is now \w{12}\. Restore it\.",
    )


def test_a_resume_that_is_refused_leaves_the_run_as_it_was_and_the_next_one_works(tiny, cut, whole):
    before = contents(cut.path)
    with pytest.raises(Exception, match=r"4 updates are asked for, but run has already made 8\."):
        launch.resume(cut, tiny.with_values({"train.max_steps": 4}))
    assert contents(cut.path) == before
    launch.resume(cut)
    assert_same_end(whole, cut)


@pytest.mark.parametrize("damage", ["removed", "cut", "digit flipped"])
def test_damaged_logs_are_a_warning_and_training_goes_on_with_what_is_whole(cut, whole, damage):
    paths = [cut.path / name for name in LOGS]
    for path in paths:
        lines = path.read_bytes().splitlines(keepends=True)
        changed = re.sub(rb'"step": \d', b'"step": 1', lines[1]) if damage == "digit flipped" else lines[1][:-5]
        path.write_bytes(b"".join([lines[0], changed, *lines[2:]]))
        if damage == "removed":
            path.unlink()
    listener = Lines()
    launch.resume(cut, listener=listener)
    for path in paths:
        assert f"warning: {path} changed after it was written, or lacks lines; what is whole is kept" in listener.heard
        assert json.loads(path.read_text().splitlines()[-1])["step"] == 12
    for tensor in TENSORS:
        assert (final(cut).path / tensor).read_bytes() == (final(whole).path / tensor).read_bytes()


def test_lines_after_the_checkpoint_are_no_damage(cut, whole):
    listener = Lines()
    assert numbers(cut)[-1]["step"] == 9  # one after the checkpoint
    launch.resume(cut, listener=listener)
    assert not [line for line in listener.heard if "warning" in line]
    assert_same_end(whole, cut)


@pytest.mark.parametrize("damage", ["deleted", "emptied", "rubbish", "of another run"])
def test_damaged_hints_have_no_effect(cut, whole, other, damage):
    for name in HINTS:
        path = cut.path / name
        path.unlink(missing_ok=True)
        if damage == "of another run" and (other.path / name).exists():
            shutil.copy(other.path / name, path)
        elif damage != "deleted":
            path.write_bytes(b"" if damage == "emptied" else b"\xff rubbish")
    launch.resume(cut)
    assert_same_end(whole, cut)


@pytest.mark.parametrize("name", DECIDING)
@pytest.mark.parametrize("damage", ["deleted", "of another run"])
def test_a_run_whose_setup_is_lost_or_of_another_run_is_refused(cut, other, name, damage):
    path = cut.path / name
    path.unlink()
    if damage == "of another run":
        shutil.copy(other.path / name, path)
    refused(cut, r"config\.yaml|run\.json")


def test_a_checkpoint_of_another_run_is_refused_and_the_keys_that_differ_are_named(cut, other):
    shutil.copytree(final(other).path, cut.checkpoints / "step-00000012")
    refused(
        cut,
        r"(?s)step-00000012: the checkpoint was trained with run\.seed=5, and the run has 1337\. Restore the old "
        r"value.*train\.lr=0\.01, and the run has 0\.02",
    )


def test_the_whole_setup_of_another_run_is_refused_by_the_checkpoint(cut, other):
    for name in DECIDING:
        shutil.copy(other.path / name, cut.path / name)
    refused(cut, r"was trained with run\.seed=1337, and the run has 5")


def test_a_run_whose_folder_is_moved_away_says_so_and_announces_no_checkpoint(tiny, tmp_path, monkeypatch):
    real = loop.train_step

    def train_step(trainer, at, *rest):
        if at == 5:
            (tmp_path / "x").rename(tmp_path / "y")
        return real(trainer, at, *rest)

    monkeypatch.setattr(loop, "train_step", train_step)
    with pytest.raises(StorageError, match=r"x/checkpoints: cannot create this folder: No such file"):
        start(tiny, tmp_path, "x")
    assert not (tmp_path / "x").exists()
    moved = Run(tmp_path / "y")
    assert final(moved).step == 4
    monkeypatch.setattr(loop, "train_step", real)
    launch.resume(moved)
    assert final(moved).step == 12


def test_another_torch_processor_or_number_of_threads_is_one_warning(tiny, cut, monkeypatch):
    monkeypatch.setattr(run_info, "processor", lambda device: "riscv64 DEFAULT")
    monkeypatch.setattr("torch.set_num_threads", lambda n: None)  # two would wait for each other on a busy machine
    listener = Lines()
    launch.resume(cut, tiny.with_values({"run.threads": 2}), listener=listener)
    (warning,) = [line for line in listener.heard if "resumed with" in line]
    assert re.fullmatch(
        r"warning: resumed with processor riscv64 DEFAULT \(before: .+\), threads 2 \(before: 1\), so the end will not "
        r"be bit for bit that of an uninterrupted run",
        warning,
    )
    assert cut.info["threads"] == 2


def test_processes_that_found_different_checkpoints_stop_before_the_first_update(cut, monkeypatch):
    with monkeypatch.context() as patch:
        crash_at(patch, 8)
        patch.setattr(distributed, "gather", lambda facts: said.append(facts) or [facts])
        said: list[dict[str, str]] = []
        with pytest.raises(Crash):
            launch.resume(cut)
    fact = "the newest checkpoint"
    (own,) = [facts[fact] for facts in said if fact in facts]
    assert re.fullmatch(r"step 8 \(\w{12}\)", own)
    others = {fact: own.replace("step 8", "step 4")}
    monkeypatch.setattr(distributed, "gather", lambda facts: [others if fact in facts else facts, facts])
    refused(
        cut, r"the newest checkpoint is step 4 \(\w{12}\) in process 0 and step 8 \(\w{12}\) in process 1", ConfigError
    )


def damages(content: bytes, other: bytes | None, flips: int) -> Iterator[bytes | None]:
    """Deleted, truncated at every twentieth, swapped, and with one bit flipped at random places."""
    yield None
    yield from (content[: len(content) * i // 20] for i in range(20))
    if other is not None:
        yield other
    for place in random.Random(len(content)).sample(range(8 * len(content)), min(flips, 8 * len(content))):
        flipped = bytearray(content)
        flipped[place // 8] ^= 1 << place % 8
        yield bytes(flipped)


def meaning(path: Path, content: bytes, sealed: int) -> object:
    """What a resume takes from a file: JSON without its white space; of a log, what was there at the checkpoint."""
    return json.loads(content) if path.suffix == ".json" else content[:sealed]


@pytest.mark.slow
def test_every_damage_to_every_file_is_found_or_has_no_effect(cut, other, monkeypatch):
    """Truncated, deleted, swapped, 200 flipped bits each. `check_run` reads as a resume does."""
    newest = final(cut).path
    assert not [check for check in check_run(cut)[0] if check.problem]
    monkeypatch.setattr(verify, "_check_text", lambda run: verify.Check(run.path))  # tests/data/dataset/test_damage.py
    shutil.rmtree(cut.checkpoints / "step-00000004")
    files = [cut.path / name for name in (*DECIDING, *LOGS, "checkpoints/latest.json", "checkpoints/best.json")]
    files += sorted(newest.iterdir())
    for path in files:
        content = path.read_bytes()
        theirs = other.path / path.relative_to(cut.path) if path.parent != newest else final(other).path / path.name
        swapped = theirs.read_bytes() if theirs.exists() and theirs.read_bytes() != content else None
        before = contents(cut.path)
        sealed = final(cut).read_json("state.json")["logs"].get(path.name, {"size": len(content)})["size"]
        for damaged in damages(content, swapped, 200):
            path.unlink() if damaged is None else path.write_bytes(damaged)
            problems = [check for check in check_run(cut)[0] if check.problem]
            if not problems:
                hint = path.parent == cut.checkpoints and damaged in (None, swapped)  # tested above
                assert hint or meaning(path, damaged or b"", sealed) == meaning(path, content, sealed), path
            path.write_bytes(content)
        assert contents(cut.path) == before


def test_a_line_of_the_metric_log_that_nests_too_deeply_is_damaged(tmp_path):
    path = tmp_path / "metrics.jsonl"
    deep = b'{"step": 1, "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n"
    path.write_bytes(b'{"step": 1}\n' + deep + b'{"step": 2}\n')
    lines: list[str] = []
    with metrics.MetricLog.open(tmp_path, resume_step=2, say=lines.append):
        pass
    assert path.read_bytes() == b'{"step": 1}\n{"step": 2}\n'
    assert lines == [f"{path}: removed 1 damaged line."]


def test_a_byte_after_the_end_of_a_finished_log_is_found(whole, tmp_path):
    run = Run(shutil.copytree(whole.path, tmp_path / "run"))
    assert [check for check in check_run(run)[0] if check.problem is not None] == []
    for name in ("metrics.jsonl", "samples.jsonl"):
        with (run.path / name).open("ab") as file:
            file.write(b"\n")
    found = {check.path.name: check.problem for check in check_run(run)[0] if check.problem is not None}
    assert found == dict.fromkeys(
        ("metrics.jsonl", "samples.jsonl"), "something was appended after the run was finished at step 12"
    )
