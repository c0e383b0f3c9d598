"""What a log line carries, that it is on disk before a checkpoint counts on it, and when a run is saved and ends."""

from __future__ import annotations

import json
import math
import signal
from statistics import fmean

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from training_runs import Crash, assert_same_end, crash_at, final, resume, signal_in, start, train_new

from gptlite.cli.terminal import Console
from gptlite.compute.device import Compute
from gptlite.errors import Diverged, Interrupted
from gptlite.inference.score import Score
from gptlite.loggers.metrics import Listener
from gptlite.runs.checkpoint import valid_checkpoints
from gptlite.runs.run import Run
from gptlite.training import loop, trainer


def log_lines(run, split):
    lines = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line["split"] == split]


class Losses(Listener):
    """Hears the loss of every update."""

    def __init__(self) -> None:
        self.heard: list[float] = []

    def progress(self, step: int, loss: float) -> None:
        self.heard.append(loss)


def test_the_logged_loss_is_the_mean_of_the_updates_since_the_line_before(tiny, tmp_path):
    cfg, losses = tiny.with_values({"log.every": 3, "train.max_steps": 11, "run.precision": "fp32"}), Losses()
    run = train_new(cfg, root=tmp_path, listener=losses).run
    assert len(losses.heard) == 11
    assert {line["step"]: line["loss"] for line in log_lines(run, "train")} == pytest.approx(
        {end: fmean(losses.heard[first:end]) for first, end in [(0, 3), (3, 6), (6, 9), (9, 11)]}
    )


def test_speed_is_measured_over_the_updates_of_this_session_since_the_line_before(tiny, tmp_path, hands, monkeypatch):
    measured = []

    class Throughput:
        def __init__(self, *_) -> None:
            pass

        def read(self, tokens: int, seconds: float) -> dict[str, float]:
            measured.append((tokens, seconds))
            return {}

    monkeypatch.setattr(loop, "Throughput", Throughput)
    cfg = tiny.with_values({"log.every": 3, "train.max_steps": 7})
    run = train_new(cfg, root=tmp_path).run
    resume(run, cfg.with_values({"train.max_steps": 12}))
    # Lines after 3, 6 and 7 updates of 8 x 16 tokens and 2 seconds each; resumed, after 9 and 12. The time of
    # evaluations does not count.
    assert measured == [(3 * 128, 6), (3 * 128, 6), (1 * 128, 2), (2 * 128, 4), (3 * 128, 6)]


def test_patience_counts_anew_from_every_best_and_a_best_is_saved_also_between_two_saves(tiny, tmp_path, monkeypatch):
    cfg = tiny.with_values({"train.patience": 2, "eval.every": 2, "save.every": 100, "train.max_steps": 40})
    scores = iter([5.0, 5.5, 4.0, 4.5, 3.9, 3.9, 4.1, 3.0])
    monkeypatch.setattr(trainer.Trainer, "evaluate", lambda *_: Score(next(scores) * 10, 10, 10, 10))
    outcome = train_new(cfg, root=tmp_path)
    # After 2, 4, ... updates: bests at 2, 6 and 10; those after 12 and 14 are the first two in a row without one.
    assert outcome.state.step == 14
    assert outcome.state.best_step == 10
    assert (10, 3.9) in [(found.step, found.score) for found in valid_checkpoints(outcome.run.checkpoints)]
    assert outcome.run.finished


def test_a_power_cut_after_a_save_loses_no_line_up_to_it(tiny, tmp_path, monkeypatch, unsynced):
    save_checkpoint, lost = trainer.save_checkpoint, {}

    def save(folder, step, *rest, **more):
        logs = [folder.parent / name for name in ("metrics.jsonl", "samples.jsonl")]
        lost[step] = [path.name for path in logs if path.stat().st_ino in unsynced]
        save_checkpoint(folder, step, *rest, **more)

    monkeypatch.setattr(trainer, "save_checkpoint", save)
    train_new(tiny, root=tmp_path)
    assert lost == {0: [], 4: [], 8: [], 12: []}


def norms(cfg, folder) -> list[tuple[float, dict[str, float]]]:
    """Of each log line: the norm of the whole gradient, and those of the layers."""
    lines = log_lines(train_new(cfg.with_values({"train.max_steps": 2}), root=folder).run, "train")
    parts = [{key: x for key, x in line.items() if key.startswith("grad_norm/")} for line in lines]
    return [(line["grad_norm"], part) for line, part in zip(lines, parts, strict=True)]


def test_log_lines_carry_the_norm_of_each_layers_gradient_when_asked_to_and_only_then(tiny, tmp_path):
    asked = tiny.with_values({"log.grad_norms": True, "log.tensorboard": True, "train.grad_clip": 1e-3})
    for whole, parts in norms(asked, tmp_path):
        assert set(parts) == {"grad_norm/embeddings", "grad_norm/block_1", "grad_norm/final_norm"}
        assert math.hypot(*parts.values()) == pytest.approx(whole, rel=1e-5)
    events = EventAccumulator(str(tmp_path / "tiny" / "tb"))
    events.Reload()
    assert "train/grad_norm/block_1" in events.Tags()["scalars"]
    assert all(parts == {} for _, parts in norms(tiny, tmp_path))


@pytest.fixture
def behind(monkeypatch):
    """Read the numbers of an update two updates later, as on a GPU, which returns before it has finished."""
    monkeypatch.setattr(Compute, "updates_ahead", 2)


def test_a_device_that_is_behind_changes_nothing_of_a_run(tiny, tmp_path, monkeypatch, request):
    cfg = tiny.with_values({"log.every": 5, "save.every": 3})
    at_once = train_new(cfg, root=tmp_path / "at once").run
    request.getfixturevalue("behind")
    assert_same_end(at_once, train_new(cfg, root=tmp_path / "behind", listener=Console()).run)
    signal_in(monkeypatch, 8, signal.SIGTERM)
    with pytest.raises(Interrupted):
        start(cfg, tmp_path, "stopped")
    monkeypatch.undo()
    assert_same_end(at_once, resume(Run(tmp_path / "stopped")).run)


def test_a_loss_that_is_not_finite_is_named_by_its_step_also_when_it_is_read_later(tiny, tmp_path, monkeypatch, behind):
    train_step = loop.train_step

    def poison(trainer, step, *rest):
        if step == 5:
            with torch.no_grad():
                trainer.model.ln_f.weight.fill_(math.nan)
        return train_step(trainer, step, *rest)

    monkeypatch.setattr(loop, "train_step", poison)
    for values in ({"log.every": 20, "save.every": 4}, {"log.every": 20, "save.every": 20, "eval.every": 3}):
        with pytest.raises(Diverged, match="step 6: the loss is nan"):
            train_new(tiny.with_values(values), root=tmp_path / str(len(values)))


def test_fp16_trains_as_fp32_does_and_resumes_bit_for_bit(tiny, tmp_path, monkeypatch):
    cfg = tiny.with_values({"train.max_steps": 40, "train.warmup_steps": 2, "save.every": 10, "run.precision": "fp16"})
    whole = train_new(cfg, root=tmp_path / "whole")
    full = train_new(cfg.with_values({"run.precision": "fp32"}), root=tmp_path / "fp32")
    assert whole.state.best_loss == pytest.approx(full.state.best_loss, rel=0.01)
    crash_at(monkeypatch, 23)
    with pytest.raises(Crash):
        start(cfg, tmp_path, "cut")
    monkeypatch.undo()
    cut = resume(Run(tmp_path / "cut")).run
    assert_same_end(whole.run, cut)
    scalers = [final(run).read_json("state.json")["scaler"] for run in (whole.run, cut)]
    assert scalers[0] == scalers[1]
    assert scalers[0]["_growth_tracker"] > 0
