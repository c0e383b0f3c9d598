"""`gptlite train --minutes`: sizes are chosen below what the user gives, and stay as they are when a run goes on."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from gptlite.config.loading import load_config
from gptlite.planning.choose_sizes import choose_sizes

QUICK = ["--minutes", "0.03", "--data", "story.txt", "--set", "run.threads=1"]


def saved(run: str) -> dict[str, object]:
    return load_config(Path("runs", run, "config.yaml")).given()


def test_a_run_has_the_sizes_that_fit_its_text_time_and_machine(gptlite):
    result = gptlite("train", *QUICK)
    assert result.code == 0, result.err
    found, sizes = saved("story"), choose_sizes(Path("story.txt").stat().st_size, 0.03, 64)
    assert {key: found[key] for key in sizes} == sizes
    assert 0 < found["train.max_minutes"] <= 0.03
    assert json.loads(Path("runs/story/run.json").read_text())["speed_class"] == 64
    assert "speed: about 64 GFLOP/s (GPTLITE_SPEED says so)" in result.err
    assert "before training:" in result.out
    assert "on the same text: " in result.out


def test_what_the_user_gives_wins_and_the_rest_agrees_with_it(gptlite):
    Path("own.yaml").write_text("model: {n_embd: 24}\ntrain: {max_steps: 9, micro_batch_size: 16}\n")
    result = gptlite("train", "-c", "own.yaml", *QUICK, "--set", "tokenizer.kind=char", "--set", "model.n_layer=1")
    assert result.code == 0, result.err
    found = saved("own")
    assert (found["model.n_embd"], found["model.n_layer"], found["tokenizer.kind"]) == (24, 1, "char")
    assert found["tokenizer.vocab_size"] is None
    assert found["train.batch_size"] == 16
    assert (found["train.max_steps"], found["train.max_minutes"]) == (None, 0.03)


def test_a_config_that_gives_every_key_only_gets_the_time(gptlite):
    text = Path("nano.yaml").read_text()
    Path("full.yaml").write_text(text + "sample: {n: 1}\n")
    result = gptlite("train", "-c", "full.yaml", "--minutes", "0.02")
    assert result.code == 0, result.err
    found, wanted = saved("full"), load_config(Path("full.yaml")).given()
    assert {key for key in wanted if found[key] != wanted[key]} == {"data.source", "train.max_steps"}


def test_a_continued_run_keeps_its_sizes_on_a_machine_of_another_speed(gptlite, monkeypatch):
    assert gptlite("train", *QUICK, "--name", "s", "--continue").code == 0
    before = saved("s")
    monkeypatch.setenv("GPTLITE_SPEED", "1048576")
    longer = gptlite("train", *QUICK[2:], "--minutes", "0.05", "--name", "s", "--continue")
    assert longer.code == 0, longer.err
    assert saved("s") == {**before, "train.max_minutes": 0.05}
    again = gptlite("train", *QUICK[2:], "--minutes", "0.05", "--name", "s", "--continue")
    assert "s is finished after " in again.err


@pytest.mark.usefixtures("sweeps_in_this_process")
def test_a_sweep_times_the_machine_once_and_its_runs_choose_for_that(gptlite, monkeypatch):
    monkeypatch.delenv("GPTLITE_SPEED")
    timings = []

    def measure(run: object) -> float:
        timings.append(run)
        return 15.0

    monkeypatch.setattr("gptlite.training.speed.measure_speed", measure)
    sweep = ["train", *QUICK, "--sweep", "model.n_layer=1,2", "--name", "s"]
    assert gptlite(*sweep).code == 0
    runs = sorted(path.parent.name for path in Path("runs").glob("*/run.json"))
    assert [saved(run)["model.n_layer"] for run in runs] == [1, 2]
    classes = [json.loads(Path("runs", run, "run.json").read_text())["speed_class"] for run in runs]
    assert (classes, len(timings)) == ([16, 16], 1)
    again = gptlite(*sweep, "--continue")
    assert (again.code, len(timings)) == (0, 1), again.err


def test_a_dry_run_shows_the_choice(gptlite):
    result = gptlite("train", *QUICK, "--dry-run")
    assert result.code == 0, result.err
    assert "for 0.03 min: " in result.err
    assert not Path("runs").exists()


@pytest.mark.parametrize("where", ["book.txt", "books"])
def test_a_word_file_is_refused_before_the_speed_is_measured(gptlite, monkeypatch, where):
    Path("books").mkdir()
    for path in (Path("book.txt"), Path("books/book.docx")):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("[Content_Types].xml", "<Types/>")
            archive.writestr("word/document.xml", "<document/>")
    monkeypatch.delenv("GPTLITE_SPEED")
    monkeypatch.setattr("gptlite.training.speed.measure_speed", lambda _: pytest.fail("the speed was measured"))
    for command in (["train"], ["train", "--dry-run"]):
        result = gptlite(*command, "--minutes", "1", "--data", where)
        assert result.refuses("Word file")
        assert "Save the text as a .txt file first." in result.err
    assert not Path("data").exists()
