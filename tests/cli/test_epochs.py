"""`train.epochs` on the command line: it becomes updates once the text is known, and the run stores those.

The text of these tests has 14,123 tokens for training: 881 windows of 16, in batches of 8. 0.05 epochs are 5.5 batches.
"""

from __future__ import annotations

import json
from pathlib import Path

from training_runs import numbers

from gptlite.config.loading import load_config
from gptlite.runs.run import Run

EPOCHS = ["train", "-c", "nano.yaml", "--set", "train.epochs=0.05"]
CHOSEN = "max_steps 6"
FINISHED = (
    "e is finished after 6 updates. To train on, --set a larger train.max_steps, train.epochs or train.max_minutes."
)


def length(run: str) -> tuple[int | None, float | None]:
    train = load_config(Path("runs", run, "config.yaml")).train
    return train.max_steps, train.epochs


def reason(run: str) -> dict[str, object]:
    found = json.loads(Path("runs", run, "run.json").read_text())["reasons"]["train.max_steps"]
    assert isinstance(found, dict)
    return found


def test_a_run_stores_the_updates_and_equals_one_of_so_many(gptlite, trained):
    result = gptlite(*EPOCHS, "--name", "e", "--verbose")
    assert result.code == 0, result.err
    assert f", {CHOSEN}, " in result.err
    assert "trained on 768: 0.054 epochs\n" in result.err
    assert ", trained on 768 tokens: 0.054 epochs; saved in runs/e\n" in result.out
    assert length("e") == (6, None)
    assert reason("e") == {"value": 6, "reason": "0.05 epochs of 881 windows"}
    assert numbers(Run(Path("runs/e"))) == numbers(Run(Path("runs/nano")))  # whose config says max_steps: 6


def test_the_command_can_be_repeated_and_the_run_extended_either_way(gptlite):
    for said in (f", {CHOSEN}, ", f"{FINISHED}\n"):
        result = gptlite(*EPOCHS, "--name", "e", "--continue", "--verbose")
        assert result.code == 0, result.err
        assert said in result.err
    assert gptlite("train", "--resume", "e").code == 0
    assert reason("e") == {"value": 6, "reason": "0.05 epochs of 881 windows"}
    assert gptlite("train", "--resume", "e", "--set", "train.epochs=0.07").code == 0
    assert length("e") == (8, None)
    assert reason("e") == {"value": 8, "reason": "0.07 epochs of 881 windows"}
    assert gptlite("train", "--resume", "e", "--set", "train.max_steps=9").code == 0
    assert reason("e") == {"value": 9, "reason": "given"}
    assert max(line["step"] for line in numbers(Run(Path("runs/e")))) == 9


def test_a_dry_run_counts_the_updates(gptlite):
    shown = gptlite(*EPOCHS, "--dry-run")
    assert CHOSEN in shown.out
    assert "; trained on 768: 0.054 epochs\n" in shown.out
    twice = ["--set", "train.epochs=2", "--set", "train.batch_size=512", "--set", "data.order=random"]
    planned = json.loads(gptlite(*EPOCHS[:3], *twice, "--dry-run", "--json").out)
    assert planned["updates"] == 4  # 1762 windows
    assert planned["text"]["trained"] == 4 * 512 * 16
    assert planned["text"]["epochs"] == 4 * 512 / 881


def test_minutes_replace_the_epochs_of_a_config(gptlite):
    Path("own.yaml").write_text(Path("nano.yaml").read_text().replace("max_steps: 6", "epochs: 0.05"))
    assert gptlite("train", "-c", "own.yaml", "--minutes", "0.02").code == 0
    train = load_config(Path("runs/own/config.yaml")).train
    assert (train.max_steps, train.epochs, train.max_minutes) == (None, None, 0.02)
