"""`gptlite train --dry-run`: it describes a run and leaves none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from training_runs import numbers

from gptlite.config.loading import load_config
from gptlite.model.gpt import GPT
from gptlite.runs.run import Run


def test_it_leaves_no_run_and_does_not_affect_later_ones(gptlite):
    assert gptlite("train", "-c", "nano.yaml", "--name", "before").code == 0
    shown = gptlite("train", "-c", "nano.yaml", "--dry-run")
    assert shown.code == 0
    assert [path.name for path in Path("runs").iterdir()] == ["before"]
    assert gptlite("train", "-c", "nano.yaml", "--name", "after").code == 0
    after, before = (numbers(Run(Path("runs", name))) for name in ("after", "before"))
    assert after == before != []


def test_it_describes_the_run(gptlite):
    first = gptlite("train", "-c", "nano.yaml", "--dry-run").out.splitlines()
    assert not Path("runs").exists()
    names = [line.split()[0] for line in first]
    assert names[:6] == ["run", "parameters", "memory", "disk", "text", "time"]
    assert first[-1].startswith("No run was made. The text is prepared in data/prepared/story-")


def test_json_has_every_figure(gptlite):
    planned = json.loads(gptlite("train", "-c", "nano.yaml", "--dry-run", "--json").out)
    vocab_size = planned["parameters"]["embeddings"] // 16
    assert planned["parameters"]["total"] == GPT(load_config(Path("nano.yaml")).model, vocab_size).n_parameters()
    assert planned["text"]["trained"] == 6 * 8 * 16
    assert planned["updates"] == 6
    times = planned["seconds"]
    # Evaluations after 3 and 6 updates, checkpoints with them.
    assert times["total"] == pytest.approx(6 * times["update"] + 2 * times["evaluation"] + 2 * times["save"])
    (warning,) = planned["warnings"]
    assert warning.startswith("warning: The warm-up takes 2 steps, which is 33% of 6 updates.")


def test_training_starts_with_a_one_line_estimate_and_times_nothing(gptlite, monkeypatch):
    monkeypatch.setattr("gptlite.training.dry_run.time_update", None)
    shown = gptlite("train", "-c", "nano.yaml", "--set", "train.warmup_steps=1").err.splitlines()
    (line,) = [line for line in shown if line.startswith("plan: ")]
    assert " of memory, " in line
    # 6 * 8 of the 881 windows of 16 in 14,123 tokens
    assert line.endswith(" per parameter), trained on 768: 0.054 epochs")
    assert [line for line in shown if line.startswith("warning: ")] == []
    shown = gptlite("train", "-c", "nano.yaml").err
    assert (
        "\nwarning: The warm-up takes 2 steps, which is 33% of 6 updates. Use --set train.warmup_steps=1 or less"
        in shown
    )


def test_under_max_minutes_it_estimates_the_number_of_updates(gptlite):
    clock = ["--set", "train.max_minutes=1", "--set", "train.scheduled_sampling=0.2"]
    planned = json.loads(gptlite("train", "-c", "nano.yaml", "--dry-run", "--json", *clock).out)
    assert planned["seconds"]["total"] == 60
    assert planned["text"]["trained"] == planned["updates"] * 8 * 16
    assert 0 < planned["updates"] < 60 / planned["seconds"]["update"]


def test_it_is_refused_where_the_run_would_be(gptlite, trained):
    for arguments, message in (
        (["--name", "nano"], "error: run nano: this name is taken. "),
        (["--set", "eval.prompt=漢"], "error: eval.prompt: "),
    ):
        results = [gptlite("train", "-c", "nano.yaml", *arguments, *also) for also in ((), ("--dry-run",))]
        assert [result.code for result in results] == [2, 2]
        said, foreseen = (result.err.splitlines()[-1] for result in results)
        assert said.startswith(message)
        assert foreseen == said


def test_a_model_too_large_for_memory_is_refused_before_it_is_built(gptlite, monkeypatch):
    monkeypatch.setattr("gptlite.training.dry_run.memory_of", lambda device: 2**27)
    monkeypatch.setattr("gptlite.training.dry_run.build", lambda *_: pytest.fail("it was tried"))
    result = gptlite("train", "-c", "nano.yaml", "--dry-run")
    assert result.refuses("error: this run may need ")
    assert "there are 128 MiB" in result.err
