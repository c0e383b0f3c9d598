"""What is refused before anything is trained."""

from __future__ import annotations

import pytest
import torch

from gptlite.errors import ConfigError, Damaged
from gptlite.runs.run import Run
from gptlite.training import launch
from gptlite.training.reconcile import saved_config


def test_prepared_text_of_which_a_bit_was_flipped_is_refused_to_new_and_resumed_runs(tiny, tmp_path):
    tiny = tiny.with_values({"data.dir": str(tmp_path / "prepared")})
    outcome = launch.start(tiny.with_values({"train.max_steps": 2}), root=tmp_path, base="a")
    ids = outcome.prepared.path / "train-00000.bin"
    good = ids.read_bytes()
    ids.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    with pytest.raises(Damaged, match=r"train-00000\.bin: .* its sha256 was "):
        launch.start(tiny, root=tmp_path, base="b")
    assert not (tmp_path / "b").exists()
    with pytest.raises(Damaged, match=r"train-00000\.bin: .* its sha256 was "):
        launch.resume(outcome.run)


@pytest.mark.parametrize(("optimizer", "expected"), [("muon", 0.01), ("adamw", None)])
def test_a_run_from_before_adamw_lr_goes_on_with_half_of_the_learning_rate(tmp_path, optimizer, expected):
    (tmp_path / "config.yaml").write_text(f"train: {{optimizer: {optimizer}, lr: 0.02}}")
    assert saved_config(Run(tmp_path)).train.adamw_lr == expected
    (tmp_path / "config.yaml").write_text("train: {optimizer: muon, lr: 0.02, adamw_lr: 0.5}")
    assert saved_config(Run(tmp_path)).train.adamw_lr == 0.5
    (tmp_path / "config.yaml").write_text("train: {optimizer: muon}")
    assert saved_config(Run(tmp_path)).train.adamw_lr == "auto"


def test_a_run_from_before_vocab_sample_goes_on_with_all_ids(tmp_path):
    (tmp_path / "config.yaml").write_text("train: {optimizer: adamw, lr: 0.02}")
    assert saved_config(Run(tmp_path)).train.vocab_sample is None
    (tmp_path / "config.yaml").write_text("train: {optimizer: adamw, lr: 0.02, vocab_sample: 9}")
    assert saved_config(Run(tmp_path)).train.vocab_sample == 9


@pytest.mark.parametrize(
    "error",
    [MemoryError(), torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("can't allocate memory")],
    ids=repr,
)
@pytest.mark.parametrize(
    ("available", "advice"),
    [
        (2**40, "Use train.micro_batch_size=4, which is expected to fit into 1024 GiB."),
        (2**20, "not even one sequence at a time is expected to fit into 1.0 MiB."),
    ],
)
def test_a_full_memory_is_an_error_that_names_what_fits(tiny, tmp_path, monkeypatch, error, available, advice):
    def build_optimizers(*_):
        raise error

    monkeypatch.setattr("gptlite.training.setup.build_optimizers", build_optimizers)
    monkeypatch.setattr("gptlite.training.setup.memory_of", lambda device: available)
    shape = r"^The memory is full: 1 layer of width 16 with micro-batches of 8 sequences of 16 tokens do not fit\. "
    with pytest.raises(ConfigError, match=shape) as raised:
        launch.start(tiny, root=tmp_path, base="a")
    assert str(raised.value).endswith(advice)
    assert not (tmp_path / "a").exists()
