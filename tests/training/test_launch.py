"""What is refused before anything is trained, and how many functions lie between the command line and an update."""

from __future__ import annotations

import sys
import traceback

import pytest
import torch
from training_runs import resume, train_new

from gptlite.__main__ import main
from gptlite.errors import ConfigError, Damaged
from gptlite.training import loop


def test_a_reader_goes_through_at_most_seven_functions_from_main_to_an_update(tiny, tmp_path, monkeypatch, repository):
    stacks = []
    update = loop.train_step

    def train_step(*args):
        stacks.append(traceback.extract_stack())
        return update(*args)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(loop, "train_step", train_step)
    (tmp_path / "story.txt").write_text("the cat sat on the mat. " * 50)
    (tmp_path / "nano.yaml").write_text(
        "data: {source: story.txt}\nmodel: {n_layer: 1, n_head: 1, n_embd: 8, block_size: 8}\n"
        "tokenizer: {kind: char}\ntrain: {max_steps: 1, batch_size: 1}\nlog: {tensorboard: false}"
    )
    for arguments in (["-c", "nano.yaml"], ["--resume", "nano", "--set", "train.max_steps=2"]):
        monkeypatch.setattr(sys, "argv", ["gptlite", "train", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 0
    assert len(stacks) == 2
    for stack in stacks:
        ours = [frame.name for frame in stack if frame.filename.startswith(str(repository / "gptlite"))]
        assert ours[0] == "main"
        assert len([*ours, "train_step"]) <= 7, ours


def test_prepared_text_of_which_a_bit_was_flipped_is_refused_to_new_and_resumed_runs(tiny, tmp_path):
    tiny = tiny.with_values({"data.dir": str(tmp_path / "prepared")})
    outcome = train_new(tiny.with_values({"train.max_steps": 2}), root=tmp_path, base="a")
    ids = outcome.prepared.path / "train-00000.bin"
    good = ids.read_bytes()
    ids.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    with pytest.raises(Damaged, match=r"train-00000\.bin: .* its sha256 was "):
        train_new(tiny, root=tmp_path, base="b")
    assert not (tmp_path / "b").exists()
    with pytest.raises(Damaged, match=r"train-00000\.bin: .* its sha256 was "):
        resume(outcome.run)


@pytest.mark.parametrize(
    "error",
    [MemoryError(), torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("can't allocate memory")],
    ids=repr,
)
def test_a_full_memory_is_an_error_that_names_what_to_lower(tiny, tmp_path, monkeypatch, error):
    def build_optimizers(*_):
        raise error

    monkeypatch.setattr("gptlite.training.trainer.build_optimizers", build_optimizers)
    with pytest.raises(
        ConfigError, match=r"^The memory is full\. Lower train\.micro_batch_size \(8\), eval\.batch_size"
    ):
        train_new(tiny, root=tmp_path, base="a")
    assert not (tmp_path / "a").exists()
