"""Runs by name, path and age; which names are valid and free; the files of a run's folder."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gptlite.errors import RunError
from gptlite.runs.run import Run


def make(root: Path, name: str, started_at: str | None = None) -> Run:
    run = Run.create(root, name, "unused")
    run.write_setup({"started_at": started_at} if started_at else {}, "run: {}\n")
    return run


def test_without_a_name_a_run_takes_the_first_free_number_of_its_config(tmp_path: Path) -> None:
    names = [Run.create(tmp_path / "runs", None, "small").name for _ in range(3)]
    assert names == ["small", "small-2", "small-3"]


def test_a_taken_name_is_an_error_with_both_ways_to_go_on(tmp_path: Path) -> None:
    make(tmp_path, "small")
    make(tmp_path, "small-2")
    with pytest.raises(RunError) as refused:
        Run.create(tmp_path, "small", "config")
    expected = (
        "run small: this name is taken. Continue that run with --resume small, or choose another name such as small-3."
    )
    assert str(refused.value) == expected
    with pytest.raises(RunError) as refused:
        Run.check_free(tmp_path, "small", "base")
    assert str(refused.value) == expected
    Run.check_free(tmp_path / "runs", "small", "base")
    assert not (tmp_path / "runs").exists()


def test_trainings_that_start_at_once_get_different_names(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        names = list(pool.map(lambda _: Run.create(tmp_path, None, "small").name, range(40)))
    assert len(set(names)) == 40


@pytest.mark.parametrize("name", ["Müller", "小さい", "a b", "v1.2_x", "x" * 200])
def test_names_of_files_are_valid_names(tmp_path: Path, name: str) -> None:
    assert make(tmp_path, name).name == name
    assert Run.open(tmp_path, name).path == tmp_path / name


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", ".hidden", "-x", "a/b", "a\\b", "a\nb", "a\0b", " a", "a ", "latest", "Best", "a.tmp-b", "ü" * 101],
)
def test_invalid_names_are_refused_before_a_folder_is_made(tmp_path: Path, name: str) -> None:
    with pytest.raises(RunError, match=r"^run .*: a run cannot have this name\. .*\. Choose another name\.$"):
        Run.create(tmp_path / "runs", name, "small")
    assert list(tmp_path.iterdir()) == []


def test_a_run_opens_by_name_and_by_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make(tmp_path / "runs", "small")
    monkeypatch.chdir(tmp_path)
    assert Run.open(Path("runs"), "small").path == Path("runs/small")
    assert Run.open(Path("elsewhere"), "runs/small").name == "small"
    assert Run.open(Path("runs"), str(run.path)) == run
    monkeypatch.chdir(run.path)
    assert Run.open(Path("runs"), ".").name == "small"


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        ("smal", r"^run smal: there is no run of this name in .*, and no such folder\. Did you mean small\?$"),
        ("xyz", r"^run xyz: there is no run of this name in .*\. The newest runs are big, small\.$"),
        ("", r'^run "": there is no run of this name in .*\. The newest runs are big, small\.$'),
        ("thesis", r"thesis: this is not the folder of a run, since it has no config\.yaml\."),
    ],
)
def test_a_missing_run_is_an_error_that_says_what_exists(tmp_path: Path, asked: str, complaint: str) -> None:
    make(tmp_path, "big")
    make(tmp_path, "small")
    (tmp_path / "thesis").mkdir()
    with pytest.raises(RunError, match=complaint):
        Run.open(tmp_path, asked)


def test_the_newest_run_is_the_one_that_started_last_whatever_its_file_times(tmp_path: Path) -> None:
    make(tmp_path, "b", "2026-03-02T10:00:00+00:00")
    make(tmp_path, "c", "2026-03-02T10:30:00+01:00")  # half past nine in UTC
    make(tmp_path, "a", "2026-03-02T10:00:00+00:00")
    for number, name in enumerate("bac"):
        os.utime(tmp_path / name, (number, number))
    assert [run.name for run in Run.all(tmp_path)] == ["c", "a", "b"]
    assert Run.open(tmp_path, "latest").name == "b"


def test_a_run_with_a_damaged_run_json_has_the_time_of_its_folder(tmp_path: Path) -> None:
    make(tmp_path, "old", "2020-01-01T00:00:00+00:00")
    make(tmp_path, "new", "2025-01-01T00:00:00+00:00")
    lost = make(tmp_path, "lost")
    (lost.path / "run.json").write_bytes(b'{"format_')
    os.utime(lost.path, (1.6e9, 1.6e9))  # September 2020
    assert [run.name for run in Run.all(tmp_path)] == ["old", "lost", "new"]


def test_latest_can_mean_the_newest_unfinished_run(tmp_path: Path) -> None:
    make(tmp_path, "first", "2026-01-01T00:00:00+00:00")
    second = make(tmp_path, "second", "2026-01-02T00:00:00+00:00")
    assert not second.finished
    second.finish({"step": 100})
    assert second.finished
    assert Run.open(tmp_path, "latest").name == "second"
    assert Run.open(tmp_path, "latest", unfinished=True).name == "first"
    second.reopen()
    assert Run.open(tmp_path, "latest", unfinished=True).name == "second"


def test_the_newest_run_is_the_one_that_started_last_even_after_the_clock_was_set_back(tmp_path: Path) -> None:
    first = Run.create(tmp_path, "a", "unused")
    first.write_setup({"started_at": "2099-01-01T00:00:00+00:00"}, "run: {}\n")
    assert [make(tmp_path, name).name for name in ("c", "b")] == ["c", "b"]
    assert [run.name for run in Run.all(tmp_path)] == ["a", "c", "b"]
    assert Run.open(tmp_path, "latest").name == "b"


def test_a_name_whose_start_was_killed_before_its_config_is_free(tmp_path: Path) -> None:
    (tmp_path / "small").mkdir()
    for name in (".lock", "run.json", "config.yaml.tmp-1-abcd"):
        (tmp_path / "small" / name).touch()
    Run.check_free(tmp_path, "small", "base")
    assert not Run.create(tmp_path, "small", "base").started
    assert Run.create(tmp_path, None, "small").name == "small-2"
    (tmp_path / "small" / "notes.txt").touch()
    with pytest.raises(RunError, match=r"this name is taken\. .* such as small-3\."):
        Run.create(tmp_path, "small", "base")


def test_a_config_is_sealed_also_while_a_resume_replaces_it(tmp_path: Path) -> None:
    run = make(tmp_path, "small")
    run.write_setup(run.info, "run: {seed: 1}\n")
    run.check_config()
    for text, is_ours in (("run: {}\n", True), ("run: {seed: 2}\n", False)):  # the one before: killed in between
        (run.path / "config.yaml").write_text(text)
        if is_ours:
            run.check_config()
            continue
        with pytest.raises(RunError, match=r"this file changed after it was written: its sha256 was \w{12} and is now"):
            run.check_config()


def test_leftovers_of_a_killed_training_are_removed_and_nothing_else(tmp_path: Path) -> None:
    run = make(tmp_path, "small")
    (run.checkpoints / "step-00000002.tmp-77").mkdir(parents=True)
    (run.checkpoints / "step-00000001").mkdir()
    (run.path / "run.json.tmp-77-ab").touch()
    with run.lock():
        assert len(run.remove_leftovers()) == 2
    left = [".lock", "checkpoints", "config.yaml", "run.json", "step-00000001"]
    assert sorted(path.name for path in run.path.rglob("*")) == left


def test_what_is_logged_before_the_first_checkpoint_is_no_proof_of_one(tmp_path):
    run = Run(tmp_path)
    metrics = tmp_path / "metrics.jsonl"
    assert not run.has_trained
    metrics.write_text('{"step": 0, "split": "val", "attention_entropy/block_1": 1.5, "tokens": 0}\n')
    assert not run.has_trained
    metrics.write_text(metrics.read_text() + '{"step": 5, "split": "val", "loss": 3.0}\n')
    assert run.has_trained
