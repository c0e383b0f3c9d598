"""`gptlite train --minutes`: sizes are chosen below what the user gives, and stay as they are when a run goes on."""

from __future__ import annotations

import json
import re
import shlex
import zipfile
from pathlib import Path

import pytest

from gptlite.cli.train.result import command_for_better
from gptlite.config.loading import load_config
from gptlite.planning.choose_sizes import choose_sizes
from gptlite.runs.run import Run
from gptlite.training.reconcile import saved_config

MINUTES = 0.015  # about the least that is enough for an update to learn from
QUICK = ["--minutes", str(MINUTES), "--data", "story.txt", "--set", "run.threads=1"]


def saved(run: str) -> dict[str, object]:
    return load_config(Path("runs", run, "config.yaml")).given()


def test_a_run_has_the_sizes_that_fit_its_text_time_and_machine(gptlite):
    result = gptlite("train", *QUICK, "--verbose")
    assert result.code == 0, result.err
    found, sizes = saved("story"), choose_sizes(Path("story.txt").stat().st_size, MINUTES, 64)
    assert {key: found[key] for key in sizes} == sizes
    assert 0 < found["train.max_minutes"] <= MINUTES
    info = json.loads(Path("runs/story/run.json").read_text())
    assert info["speed_class"] == 64
    assert {"model.n_embd", "tokenizer.kind"} < set(info["chosen"])
    assert "train.max_minutes" not in info["chosen"]
    assert "speed: about 64 GFLOP/s (GPTLITE_SPEED says so)" in result.err
    assert "before training:" in result.out
    assert "beside compressors of that text: " in result.out


def test_what_the_user_gives_wins_and_the_rest_agrees_with_it(gptlite):
    Path("own.yaml").write_text("model: {n_embd: 24}\ntrain: {max_steps: 9, micro_batch_size: 16}\n")
    result = gptlite("train", "-c", "own.yaml", *QUICK, "--set", "tokenizer.kind=char", "--set", "model.n_layer=1")
    assert result.code == 0, result.err
    found = saved("own")
    assert (found["model.n_embd"], found["model.n_layer"], found["tokenizer.kind"]) == (24, 1, "char")
    assert found["tokenizer.vocab_size"] is None
    assert found["train.batch_size"] == 16
    assert (found["train.max_steps"], found["train.max_minutes"]) == (None, MINUTES)


def test_a_key_of_bpe_chooses_bpe_and_a_training_for_it(gptlite):
    result = gptlite("train", *QUICK, "--set", "tokenizer.pattern=gpt2")
    assert result.code == 0, result.err
    expected = choose_sizes(Path("story.txt").stat().st_size, MINUTES, 64, kind="bpe")
    found = saved("story")
    assert (found["tokenizer.kind"], found["tokenizer.pattern"]) == ("bpe", "gpt2")
    assert found["tokenizer.vocab_size"] == expected["tokenizer.vocab_size"]
    assert found["train.ngram_teacher"] == expected["train.ngram_teacher"] == 0.0


def test_a_continued_run_keeps_its_sizes_on_a_machine_of_another_speed(gptlite, monkeypatch):
    assert gptlite("train", *QUICK, "--name", "s", "--continue").code == 0
    before = saved("s")
    monkeypatch.setenv("GPTLITE_SPEED", "1048576")
    longer = gptlite("train", *QUICK[2:], "--minutes", "0.03", "--name", "s", "--continue")
    assert longer.code == 0, longer.err
    assert saved("s") == {**before, "train.max_minutes": 0.03}
    again = gptlite("train", *QUICK[2:], "--minutes", "0.03", "--name", "s", "--continue")
    assert "s is finished after " in again.err


@pytest.mark.usefixtures("sweeps_in_this_process")
def test_a_sweep_times_the_machine_once_and_its_runs_choose_for_that(gptlite, monkeypatch):
    monkeypatch.delenv("GPTLITE_SPEED")
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    timings = []

    def measure(run: object) -> float:
        timings.append(run)
        return 120.0

    monkeypatch.setattr("gptlite.training.throughput.measure_speed", measure)
    sweep = ["train", *QUICK, "--sweep", "model.n_layer=1,2", "--name", "s"]
    assert gptlite(*sweep).code == 0
    runs = sorted(path.parent.name for path in Path("runs").glob("*/run.json"))
    assert [saved(run)["model.n_layer"] for run in runs] == [1, 2]
    classes = [json.loads(Path("runs", run, "run.json").read_text())["speed_class"] for run in runs]
    assert (classes, len(timings)) == ([128, 128], 1)
    again = gptlite(*sweep, "--continue")
    assert (again.code, len(timings)) == (0, 1), again.err


@pytest.fixture
def short(monkeypatch):
    """Without --config and --minutes, a text is trained on for less than a second instead of three minutes."""
    monkeypatch.setattr("gptlite.cli.train.configs.DEFAULT_MINUTES", MINUTES)


SELDOM = ["--set", "eval.every=1000", "--set", "save.every=1000"]
OWN = ["train", "--data", "story.txt", "--set", "run.threads=1"]


@pytest.mark.usefixtures("short")
def test_a_text_without_a_config_gets_sizes_as_by_minutes_and_says_so_in_two_lines(gptlite):
    result = gptlite(*OWN)
    assert result.code == 0, result.err
    found, sizes = saved("story"), choose_sizes(Path("story.txt").stat().st_size, MINUTES, 64)
    assert {key: found[key] for key in sizes} == sizes
    start = [line for line in result.err.splitlines() if line.startswith(("for ", "plan: "))]
    assert len(start) == 2
    assert start[0].startswith(f"for {MINUTES} min (--minutes M for another time, --config for other sizes): char, ")
    assert "GFLOP/s" not in result.err
    assert gptlite(*OWN, "--name", "again", "--continue").code == 0
    before = saved("again")
    finished = gptlite(*OWN, "--name", "again", "--continue")
    assert "again is finished after " in finished.err, finished.err
    assert saved("again") == before


@pytest.mark.parametrize("setting", ["train.max_steps=5", "train.epochs=0.05"])
def test_updates_that_are_counted_turn_the_clock_off(gptlite, setting):
    result = gptlite(*OWN, "--set", setting, "--name", "counted", "--continue")
    assert result.code == 0, result.err
    assert "sizes as for 3 min (--minutes M for another time, --config for other sizes): char, " in result.err
    found, sizes = saved("counted"), choose_sizes(Path("story.txt").stat().st_size, 3.0, 64)
    of_model = [key for key in sizes if key.startswith("tokenizer.") or key in ("model.n_layer", "model.n_embd")]
    assert {key: found[key] for key in of_model} == {key: sizes[key] for key in of_model}
    assert found["train.max_minutes"] is None
    assert 0 <= found["train.warmup_steps"] <= found["train.max_steps"] / 4
    assert found["model.dropout"] == 0.0  # a text that is read once
    assert "warning: " not in result.err
    again = gptlite(*OWN, "--set", setting, "--name", "counted", "--continue")
    assert "counted is finished after " in again.err, again.err


def test_a_config_that_reads_the_text_too_often_is_told_what_does_better(gptlite):
    Path("notes.txt").write_text("a line of a diary, and another one. " * 60)
    often = gptlite("train", "-c", "nano.yaml", "--data", "notes.txt", "--set", "train.epochs=17", *SELDOM)
    assert "the text was read 17 times. Sizes chosen for it do better: --data without --config" in often.out
    assert "Sizes chosen" not in gptlite("train", "-c", "nano.yaml").out


def test_a_sample_says_how_much_of_it_is_copied(gptlite):
    Path("drill.txt").write_text("abcdefghijklmnopqrstuvwxyz " * 300)
    result = gptlite("train", "-c", "nano.yaml", "--data", "drill.txt", "--set", "train.max_steps=150", *SELDOM)
    assert result.code == 0, result.err
    line = r"^(\d+)% of this sample is copied word for word from the training text(?:: the model mostly repeats it)?$"
    (share,) = re.findall(line, result.out, re.M)
    assert int(share) > 50
    assert re.findall(line, gptlite("train", "-c", "nano.yaml").out, re.M) == ["0"]  # six updates of another text


def test_where_the_text_ends_the_training_more_of_it_is_advised_and_not_more_time(gptlite):
    Path("page.txt").write_text(Path("story.txt").read_text()[:1100])
    result = gptlite("train", "--minutes", "0.1", "--data", "page.txt", "--set", "tokenizer.kind=bpe")
    assert result.code == 0, result.err
    early = r"training ends after 0\.0\d+ min of 0\.1: after that it would mostly learn so short"
    assert re.search(early, result.err), result.err
    assert "more training should help" not in result.out
    assert "more text would make it better" in result.out or "overfitted" in result.out


@pytest.mark.usefixtures("trained")
def test_the_command_for_a_better_model_can_be_pasted(gptlite):
    assert gptlite("train", *QUICK).code == 0
    chosen, given = (Run(Path("runs", name)) for name in ("story", "nano"))
    pasted = [
        *command_for_better("time", chosen, saved_config(chosen)),
        *command_for_better("time", given, saved_config(given)),
        *command_for_better("sizes", given, saved_config(given)),
    ]
    assert pasted == [
        "train --data story.txt --minutes 0.045",
        "train --resume nano --set train.max_steps=18",
        f"train --data {saved_config(given).data.source}",  # of another folder
    ]
    for command in pasted[:2]:
        assert gptlite(*shlex.split(command)).code == 0
    (more,) = command_for_better("text", chosen, saved_config(chosen))
    assert more == "train --data story.txt --data MORE_TEXT --minutes 0.015"
    read_otherwise = saved_config(chosen).with_values({"data.encoding": "latin-1"})
    assert command_for_better("time", chosen, read_otherwise) == command_for_better(None, chosen, read_otherwise) == []


@pytest.mark.parametrize("where", ["book.txt", "books"])
def test_a_word_file_is_refused_before_the_speed_is_measured(gptlite, monkeypatch, where):
    Path("books").mkdir()
    for path in (Path("book.txt"), Path("books/book.docx")):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("[Content_Types].xml", "<Types/>")
            archive.writestr("word/document.xml", "<document/>")
    monkeypatch.delenv("GPTLITE_SPEED")
    monkeypatch.setattr("gptlite.training.throughput.measure_speed", lambda _: pytest.fail("the speed was measured"))
    for command in (["train"], ["train", "--dry-run"]):
        result = gptlite(*command, "--minutes", "1", "--data", where)
        assert result.refuses("Word file")
    assert not Path("data").exists()


def test_a_length_that_set_gives_is_kept_beside_minutes(gptlite):
    result = gptlite("train", *QUICK, "--set", "train.max_minutes=0.005", "--name", "shorter")
    assert result.code == 0, result.err
    assert saved("shorter")["train.max_minutes"] == 0.005


def test_the_advice_to_train_on_after_a_short_text_ended_the_training_is_taken(gptlite):
    Path("short.txt").write_text(Path("story.txt").read_text()[:1000])
    asked = ["train", "--data", "short.txt", "--minutes", "0.05", "--set", "tokenizer.kind=bpe"]
    ended = gptlite(*asked, "--name", "ended")
    assert saved("ended")["train.max_minutes"] < 0.05
    advised = re.search(r"--set (\S+) to train on", ended.err)[1]
    assert gptlite(*asked, "--set", advised, "--name", "longer").code == 0
    assert saved("longer")["train.max_minutes"] == 0.05
