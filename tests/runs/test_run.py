"""Runs by name, by path and by age; who may use a name; what their folders say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gptlite.errors import RunError, StorageError
from gptlite.runs.run import Run


def make(root: Path, name: str, started_at: str | None = None) -> Run:
    run = Run.create(root, name, "unused")
    run.write_config("run: {}\n")
    if started_at:
        run.write_info({"started_at": started_at})
    return run


def test_without_a_name_a_run_takes_the_first_free_number_of_its_config(tmp_path: Path) -> None:
    names = [Run.create(tmp_path / "runs", None, "small").name for _ in range(3)]
    assert names == ["small", "small-2", "small-3"]


def test_an_explicit_name_in_use_is_an_error_that_names_both_ways_on(tmp_path: Path) -> None:
    make(tmp_path, "small")
    make(tmp_path, "small-2")
    with pytest.raises(RunError) as refused:
        Run.create(tmp_path, "small", "config")
    expected = "--name = small: already used; continue it with --resume small, or take a free name such as small-3"
    assert str(refused.value) == expected
    with pytest.raises(RunError) as refused:
        Run.check_free(tmp_path, "small", "base")
    assert str(refused.value) == expected
    Run.check_free(tmp_path / "runs", "small", "base")
    assert not (tmp_path / "runs").exists()


def test_trainings_that_race_for_names_get_different_ones(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        names = list(pool.map(lambda _: Run.create(tmp_path, None, "small").name, range(40)))
    assert len(set(names)) == 40


@pytest.mark.parametrize("name", ["Müller", "小さい", "a b", "v1.2_x", "x" * 200])
def test_names_may_hold_what_file_names_hold(tmp_path: Path, name: str) -> None:
    assert make(tmp_path, name).name == name
    assert Run.open(tmp_path, name).path == tmp_path / name


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", ".hidden", "-x", "a/b", "a\\b", "a\nb", "a\0b", " a", "a ", "latest", "Best", "a.tmp-b", "ü" * 101],
)
def test_names_that_would_mislead_are_refused_before_anything_is_made(tmp_path: Path, name: str) -> None:
    with pytest.raises(RunError, match=r"^--name = .*: the name of a folder, and .*; choose another --name$"):
        Run.create(tmp_path / "runs", name, "small")
    assert list(tmp_path.iterdir()) == []


def test_a_config_whose_name_is_unfit_asks_for_a_name(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"run name from the config = latest: .*choose another --name"):
        Run.create(tmp_path, None, "latest")


def test_a_root_that_cannot_be_made_is_a_storage_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"file: create folder = Not a directory"):
        Run.create(tmp_path / "file" / "runs", None, "small")


def test_claim_continues_a_run_begins_an_absent_one_and_survives_a_kill_in_between(tmp_path: Path) -> None:
    first = Run.claim(tmp_path, "y")
    assert not first.started
    (first.path / ".lock").touch()
    first.write_info({})
    (first.path / "config.yaml.tmp-1-abcd").touch()  # killed before config.yaml was there
    again = Run.claim(tmp_path, "y")
    assert (again, again.started) == (first, False)
    again.write_config("run: {}\n")
    assert Run.claim(tmp_path, "y").started


def test_claim_refuses_a_folder_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").touch()
    with pytest.raises(RunError, match=r"thesis: run = no config\.yaml in it"):
        Run.claim(tmp_path, "thesis")


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
        ("smal", r"run = smal: a run's name or folder; did you mean small\?"),
        ("xyz", r"run = xyz: a run's name or folder; there are big, small"),
        ("", r"run = : a run's name or folder; there are big, small"),
        ("thesis", r"thesis: run = no config\.yaml in it: the folder of a run"),
        ("small/checkpoints/step-00000001", r"run = a checkpoint: the folder of a run; name small$"),
    ],
)
def test_what_is_no_run_is_refused_with_what_was_looked_for(tmp_path: Path, asked: str, complaint: str) -> None:
    make(tmp_path, "big")
    (make(tmp_path, "small").checkpoints / "step-00000001").mkdir(parents=True)
    (tmp_path / "small" / "checkpoints" / "step-00000001" / "MANIFEST.json").touch()
    (tmp_path / "thesis").mkdir()
    with pytest.raises(RunError, match=complaint):
        Run.open(tmp_path, asked)


def test_the_newest_run_is_the_one_that_started_last_whatever_the_file_times_say(tmp_path: Path) -> None:
    make(tmp_path, "b", "2026-03-02T10:00:00+00:00")
    make(tmp_path, "c", "2026-03-02T10:30:00+01:00")  # half past nine in UTC
    make(tmp_path, "a", "2026-03-02T10:00:00+00:00")
    for number, name in enumerate("bac"):
        os.utime(tmp_path / name, (number, number))
    assert [run.name for run in Run.all(tmp_path)] == ["c", "a", "b"]
    assert Run.newest(tmp_path).name == "b"


def test_a_run_whose_record_is_lost_counts_by_the_time_of_its_folder(tmp_path: Path) -> None:
    make(tmp_path, "old", "2020-01-01T00:00:00+00:00")
    make(tmp_path, "new", "2025-01-01T00:00:00+00:00")
    lost = make(tmp_path, "lost")
    (lost.path / "run.json").write_bytes(b'{"format_')
    os.utime(lost.path, (1.6e9, 1.6e9))  # September 2020
    assert [run.name for run in Run.all(tmp_path)] == ["old", "lost", "new"]


def test_latest_is_the_newest_unfinished_run_where_one_is_to_be_continued(tmp_path: Path) -> None:
    make(tmp_path, "first", "2026-01-01T00:00:00+00:00")
    second = make(tmp_path, "second", "2026-01-02T00:00:00+00:00")
    second.finish({"step": 100})
    assert Run.open(tmp_path, "latest").name == "second"
    assert Run.open(tmp_path, "latest", unfinished=True).name == "first"
    second.reopen()
    assert Run.open(tmp_path, "latest", unfinished=True).name == "second"


def test_latest_of_nothing_says_so(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"runs: run = latest: no run there; start one with gptlite train"):
        Run.open(tmp_path / "runs", "latest")


def test_finished_lasts_until_it_is_taken_back(tmp_path: Path) -> None:
    run = make(tmp_path, "small")
    states = [run.finished]
    run.finish({"step": 100, "reason": "max_steps"})
    states.append(Run.open(tmp_path, "small").finished)
    run.reopen()
    assert [*states, run.finished] == [False, True, False]


def test_info_comes_back_with_its_start_and_a_version(tmp_path: Path) -> None:
    run = make(tmp_path, "small")
    run.write_info({"argv": ["gptlite", "train", "\udce4"]})
    info = run.info
    assert info["argv"] == ["gptlite", "train", "\udce4"]
    run.write_info({**info, "resumed": 1})
    assert run.info["started_at"] == info["started_at"]
    assert run.info["format_version"] == 1


def test_a_record_of_another_version_is_refused_by_that_version(tmp_path: Path) -> None:
    run = make(tmp_path, "small")
    (run.path / "run.json").write_text(json.dumps({"format_version": 2}))
    with pytest.raises(RunError, match=r"run\.json: format_version = 2: this gptlite reads 1"):
        _ = run.info


def test_the_config_comes_back_as_written(tmp_path: Path) -> None:
    run = make(tmp_path, "small")
    run.write_config("# Größe\r\nrun: {}\n")
    assert run.config_text() == "# Größe\r\nrun: {}\n"
    (run.path / "config.yaml").write_bytes(b"\xff")
    with pytest.raises(RunError, match=r"config\.yaml: content = .*can't decode byte 0xff"):
        run.config_text()


def test_leftovers_of_a_killed_trainer_go_and_everything_else_stays(tmp_path: Path) -> None:
    run = make(tmp_path, "small")
    (run.checkpoints / "step-00000002.tmp-77").mkdir(parents=True)
    (run.checkpoints / "step-00000001").mkdir()
    (run.path / "run.json.tmp-77-ab").touch()
    with run.lock():
        assert len(run.remove_leftovers()) == 2
    assert sorted(path.name for path in run.path.rglob("*")) == [".lock", "checkpoints", "config.yaml", "step-00000001"]


def test_a_locked_run_names_its_trainer(tmp_path: Path) -> None:
    run = make(tmp_path, "small")
    with run.lock(), pytest.raises(RunError, match=rf"small/\.lock: lock = held by .*pid {os.getpid()}"), run.lock():
        pass


def test_finding_and_locking_runs_never_loads_torch(tmp_path: Path) -> None:
    make(tmp_path, "small")
    code = (
        "import sys; from pathlib import Path; sys.modules['torch'] = sys.modules['tensorboard'] = None\n"
        "from gptlite.runs import choosing, metrics, rundir, tensorboard\n"
        "run = rundir.Run.open(Path(sys.argv[1]), 'latest')\n"
        "with run.lock(): print(choosing.latest(run.checkpoints, print))"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True)
    assert done.stdout == "None\n"
