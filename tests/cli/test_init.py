"""`gptlite train --init`: a run goes on with another text, says what that brings, and what is refused."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import torch

from gptlite.cli.train.result import command_for_better
from gptlite.runs.checkpoint import valid_checkpoints
from gptlite.runs.run import Run
from gptlite.training.reconcile import saved_config

SECOND = ["train", "-c", "nano.yaml", "--data", "more.txt", "--init", "nano", "--name", "second"]


@pytest.fixture(autouse=True)
def _more_text(gptlite, trained) -> None:
    Path("more.txt").write_text("the mat sat on a dog.\n" * 60)


def scores(run: str) -> list[dict[str, float]]:
    lines = map(json.loads, Path("runs", run, "metrics.jsonl").read_text().splitlines())
    return [line for line in lines if line["split"] == "val"]


def test_it_begins_with_the_weights_and_says_what_that_brought(gptlite):
    made = gptlite(*SECOND, "--set", "save.keep=9")
    assert made.code == 0
    assert re.search(
        r"begins with the weights of \S*runs/nano/checkpoints/step-0+6: 18 of 18 tokens as they were", made.err
    )
    before, first = (
        valid_checkpoints(Path("runs", run, "checkpoints"))[which] for run, which in (("nano", -1), ("second", 0))
    )
    assert first.step == 0
    tensors = first.read_tensors("model.safetensors")
    for name, expected in before.read_tensors("model.safetensors").items():
        assert torch.equal(tensors[name], expected)
    old = scores("nano")[-1]["bits_per_byte"]
    start, *_, last = scores("second")
    assert start["step"] == 0
    assert f"before training: {start['bits_per_byte']:.3f} bits per byte of the same text" in made.out
    assert f"the beginning of the old validation text has {start['old_bits_per_byte']:.3f} bits per byte" in made.out
    assert abs(start["old_bits_per_byte"] - old) < 0.2  # of a part of that text
    assert last["bits_per_byte"] < start["bits_per_byte"]


def test_what_is_forgotten_is_not_known_of_a_checkpoint_without_its_run(gptlite):
    shutil.copytree(valid_checkpoints(Path("runs/nano/checkpoints"))[-1].path, "alone")
    made = gptlite(*SECOND[:5], "--init", "alone", "--name", "second")
    assert made.code == 0
    assert "what is forgotten" not in made.out
    assert "old_bits_per_byte" not in scores("second")[0]


def test_sizes_are_chosen_around_the_model(gptlite):
    made = gptlite("train", "--data", "more.txt", "--init", "nano", "--minutes", "0.01", "--name", "quick")
    assert made.code == 0
    run = Run(Path("runs/quick"))
    (better,) = command_for_better("text", run, saved_config(run))
    assert better == "train --data more.txt --init nano --data MORE_TEXT --minutes 0.01"
    own = saved_config(run).with_values({"tokenizer.from": None})
    (better,) = command_for_better("time", run, own)
    assert better == "train --data more.txt --init nano --set tokenizer.kind=char --minutes 0.03"
    assert "for 0.01 min: tokenizer of nano, 1 layer of width 16, context 16, " in made.err
    assert "the tokenizer is that of nano: char, 18 ids" in made.err


@pytest.mark.usefixtures("sweeps_in_this_process")
def test_every_run_of_a_sweep_begins_with_it(gptlite):
    made = gptlite(*SECOND[:-2], "--sweep", "train.lr=0.001,0.002", "--name", "rates")
    assert made.code == 0
    assert made.err.count("18 of 18 tokens as they were") == 2


def test_it_continues_although_the_other_run_was_trained_on(gptlite):
    assert gptlite(*SECOND).code == 0
    assert gptlite("train", "--resume", "nano", "--set", "train.max_steps=9").code == 0
    assert gptlite(*SECOND, "--continue", "--set", "train.max_steps=8").code == 0


def test_what_cannot_begin_is_refused(gptlite):
    assert gptlite("train", "--resume", "nano", "--init", "nano").refuses("--init cannot be combined with --resume.")
    assert gptlite(*SECOND[:5], "--init", "more.txt").refuses("--init more.txt: this is a file. Name a run, ")
    assert gptlite(*SECOND[:5], "--init", "nothing").refuses("--init nothing: there is no run of this name")
    Path("more.txt").write_text("naïve cafés\n" * 60)
    assert gptlite(*SECOND).refuses("the tokenizer does not know ")
    assert gptlite(*SECOND, "--set", "model.n_embd=32").refuses(
        "model.n_embd is 32, but in nano it is 16. Leave it out."
    )
    assert gptlite("train", "--resume", "nano", "--set", "train.from=nano").refuses("train.from is None in this run")
    assert [path.name for path in Path("runs").iterdir()] == ["nano"]
    made = gptlite(*SECOND, "--set", "tokenizer.kind=char")  # another tokenizer, with these characters
    assert made.code == 0
    assert re.search(r"\d of \d+ tokens as they were, \d new", made.err)


def test_a_model_card_names_the_model_that_training_began_with(gptlite):
    assert gptlite(*SECOND).code == 0
    assert gptlite("export", "second").code == 0
    assert "Training began with the weights of `nano`." in Path("second-hf/README.md").read_text("utf-8")


def test_two_models_to_begin_with_are_refused(gptlite):
    result = gptlite(*SECOND, "--set", "train.from=other")
    assert result.refuses("--init with --set train.from: both name a model to begin with. Keep one of them.")


def test_an_old_text_with_other_characters_is_not_measured_and_why_is_said(gptlite):
    Path("more.txt").write_text("ab ab\n" * 200)
    made = gptlite(*SECOND, "--set", "tokenizer.kind=char")
    assert made.code == 0
    assert "what is forgotten of the old text is not measured: " in made.err
    assert "old_bits_per_byte" not in scores("second")[0]
