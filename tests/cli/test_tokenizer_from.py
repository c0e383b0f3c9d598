"""`tokenizer.from`: a run uses the tokenizer of another, which may then be deleted."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from gptlite.config.loading import load_config
from gptlite.runs.checkpoint import valid_checkpoints
from gptlite.runs.run import Run
from gptlite.tokenizers.base import Tokenizer, load

FROM_NANO = ["train", "-c", "nano.yaml", "--data", "more.txt", "--set", "tokenizer.from=nano", "--name", "second"]
BPE = ["--set", "tokenizer.kind=bpe", "--set", "tokenizer.vocab_size=270", "--set", "tokenizer.pattern=gpt2"]


@pytest.fixture(autouse=True)
def _more_text(gptlite) -> None:
    Path("more.txt").write_text("the mat sat on a dog.\n" * 60)


def tokenizer_of(run: str) -> Tokenizer:
    return load(valid_checkpoints(Path("runs", run, "checkpoints"))[-1].path)


def delete_nano() -> None:
    shutil.rmtree("runs/nano")
    for path in Path("data/prepared").glob("story-*"):
        shutil.rmtree(path)


@pytest.mark.usefixtures("trained")
def test_the_ids_are_those_of_the_other_run_and_a_line_says_so(gptlite):
    asked = ["-c", "nano.yaml", "--data", "more.txt", "--set", "tokenizer.from=nano"]
    assert "char, 18 ids" in gptlite("prepare", *asked).out
    assert gptlite("prepare", *asked, "--verify").code == 0
    made = gptlite(*FROM_NANO, "--set", "tokenizer.kind=char")  # which it is
    assert made.code == 0
    assert "the tokenizer is that of nano: char, 18 ids" in made.err
    assert tokenizer_of("second").fingerprint == tokenizer_of("nano").fingerprint
    assert len(list(Path("data/prepared").glob("more-*"))) == 1
    own = gptlite("prepare", "-c", "nano.yaml", "--data", "more.txt")
    assert "char, 14 ids" in own.out  # without tokenizer.from


@pytest.mark.parametrize("made_of", ["run", "folder", "checkpoint", "checkpoint alone", "prepared", "prepared name"])
@pytest.mark.usefixtures("trained")
def test_a_run_a_checkpoint_and_a_prepared_text_can_be_named(gptlite, made_of):
    expected = tokenizer_of("nano").fingerprint
    prepared = next(Path("data/prepared").glob("story-*"))
    name = {
        **{"run": "nano", "folder": "runs/nano", "checkpoint": "runs/nano/checkpoints/step-00000003"},
        **{"checkpoint alone": "copied", "prepared": str(prepared), "prepared name": prepared.name},
    }[made_of]
    if made_of == "checkpoint alone":
        shutil.copytree("runs/nano/checkpoints/step-00000003", "copied")
        delete_nano()
    assert gptlite("train", "-c", "nano.yaml", "--data", "more.txt", "--set", f"tokenizer.from={name}").code == 0
    assert tokenizer_of("nano-2" if made_of != "checkpoint alone" else "nano").fingerprint == expected


@pytest.mark.parametrize(("kind", "sets", "more"), [("char", [], ""), ("bpe", BPE, "\u4e2d\u6587 \u00e9 {}")])
def test_the_config_holds_what_followed_and_names_the_runs_own_copy(gptlite, kind, sets, more):
    assert gptlite("train", "-c", "nano.yaml", "--name", "nano", *sets).code == 0
    Path("more.txt").write_text(f"the mat sat on a dog.{more}\n" * 60)  # a BPE knows every character
    made = gptlite(*FROM_NANO)
    assert made.code == 0
    assert "Give more text to get more" not in made.err  # than the merges that there are
    cfg, info = load_config(Path("runs/second/config.yaml")), Run(Path("runs/second")).info
    sizes = (270, "gpt2") if kind == "bpe" else (None, None)
    assert (cfg.tokenizer.kind, cfg.tokenizer.vocab_size, cfg.tokenizer.pattern) == (kind, *sizes)
    assert cfg.tokenizer.from_ == info["prepared"] == str(next(Path("data/prepared").absolute().glob("more-*")))
    assert (info["tokenizer"], info["tokenizer_from"]) == (tokenizer_of("nano").fingerprint, "nano")
    assert Run(Path("runs/nano")).info["tokenizer"] == info["tokenizer"]


@pytest.mark.usefixtures("trained")
def test_without_the_other_run_it_is_resumed_continued_and_repeated(gptlite):
    assert gptlite(*FROM_NANO).code == 0
    expected = tokenizer_of("second").fingerprint
    delete_nano()
    assert gptlite("train", "--resume", "second", "--set", "train.max_steps=8").code == 0
    assert gptlite(*FROM_NANO, "--continue", "--set", "train.max_steps=9").code == 0
    assert Path("runs/second/checkpoints/step-00000009").exists()
    assert gptlite("train", "-c", "runs/second/config.yaml", "--name", "again").code == 0
    assert tokenizer_of("again").fingerprint == expected
    assert Run(Path("runs/again")).info["data"] == Run(Path("runs/second")).info["data"]
    *files, result = gptlite("runs", "verify", "second").out.splitlines()
    assert all(line.endswith("  ok") for line in files)
    assert ", 0 damaged; a resume uses step 9" in result
    assert gptlite("sample", "second", "--set", "sample.max_new_tokens=3").code == 0
    shutil.rmtree("data/prepared")  # then the tokenizer is that of its checkpoint
    before = Run(Path("runs/second")).info["data"]
    assert gptlite("train", "--resume", "second", "--set", "train.max_steps=10").code == 0
    assert Run(Path("runs/second")).info["data"] == before
    assert Path("runs/second/checkpoints/step-00000010").exists()


@pytest.mark.usefixtures("trained")
def test_another_run_of_the_same_name_is_not_taken_for_the_first(gptlite):
    assert gptlite(*FROM_NANO).code == 0
    delete_nano()
    Path("other.txt").write_text("the cat and a dog sat on xyz\n" * 50)
    assert gptlite("train", "-c", "nano.yaml", "--data", "other.txt", "--name", "nano").code == 0
    assert gptlite("train", "--resume", "second", "--set", "train.max_steps=8").code == 0
    continued = gptlite(*FROM_NANO, "--continue", "--set", "train.max_steps=9")
    assert continued.refuses("run second: it was started on the text ")
    Path("more.txt").unlink()  # so that the texts cannot be compared
    continued = gptlite(*FROM_NANO, "--continue", "--set", "train.max_steps=9")
    assert continued.refuses("in this run and cannot become nano. Start a new run instead.")


@pytest.mark.usefixtures("trained")
@pytest.mark.parametrize(
    ("sets", "message"),
    [
        (["tokenizer.kind=bpe"], "=nano: tokenizer.kind is bpe, but in the tokenizer of nano it is char. "),
        (["tokenizer.vocab_size=300"], "tokenizer.vocab_size is 300, but in the tokenizer of nano it is null. "),
        (["tokenizer.pattern=gpt2"], "tokenizer.pattern is gpt2, but in the tokenizer of nano it is null. "),
        (["tokenizer.from=nana"], "=nana: there is no run of this name in runs, and no such folder. Did you"),
        (["tokenizer.from=gpt2"], "=gpt2: this is a kind of tokenizer, and no run. Use --set tokenizer.kind=gpt2"),
        (["tokenizer.from=runs"], "error: runs: this is not the folder of a run, since it has no config.yaml."),
        (["tokenizer.from=~nobody-at-all/x"], "tokenizer.from=~nobody-at-all/x: there is no run of this name"),
    ],
)
def test_what_cannot_be_meant_is_one_line(gptlite, sets, message):
    given = [argument for each in sets for argument in ("--set", each)]
    for command in ("train", "prepare"):
        refused = gptlite(command, "-c", "nano.yaml", "--set", "tokenizer.from=nano", *given)
        assert refused.refuses(message)
        assert len(refused.errors) == 1
    assert os.listdir("runs") == ["nano"]


@pytest.mark.usefixtures("trained")
def test_a_resumed_run_keeps_its_tokenizer(gptlite):
    assert gptlite(*FROM_NANO).code == 0
    for run, other in (("second", "runs/nano"), ("nano", "second")):
        refused = gptlite("train", "--resume", run, "--set", f"tokenizer.from={other}", "--set", "train.max_steps=8")
        assert refused.refuses(f"in this run and cannot become {other}. Start a new run instead.")


@pytest.mark.usefixtures("trained")
def test_characters_that_the_tokenizer_lacks_are_named_before_anything_is_written(gptlite):
    Path("texts").mkdir()
    Path("texts/a.txt").write_text("the cat\nsat on the caf\u00e9\n" * 30)
    Path("texts/b.txt").write_text("a dog\n\nran? \u00e9 {}\n" * 30)
    before = sorted(Path("data/prepared").iterdir())
    refused = gptlite("train", "-c", "nano.yaml", "--data", "texts", "--set", "tokenizer.from=nano")
    assert refused.errors == [
        "tokenizer.from: the tokenizer does not know '?' (U+003F), 'f' (U+0066), '{' (U+007B), '}' (U+007D), "
        "'\u00e9' (U+00E9): it knows 17 characters from its training text. Change this text, or train on one that "
        "has them. Or give the new model a tokenizer of its own, such as --set tokenizer.kind=char."
    ]
    assert sorted(Path("data/prepared").iterdir()) == before


@pytest.mark.usefixtures("trained")
def test_minutes_choose_neither_kind_nor_size(gptlite):
    dry = gptlite("train", "--minutes", "0.02", "--data", "story.txt", "--set", "tokenizer.from=nano", "--dry-run")
    assert dry.code == 0, dry.err
    assert "tokenizer of nano" in dry.err
    assert "char, 18 ids" in dry.err
