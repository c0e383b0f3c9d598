"""A run that was stopped anywhere and resumed ends as one that was left alone."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import torch
from training_runs import (
    Crash,
    assert_same_end,
    crash_at,
    final,
    numbers,
    resume,
    resume_or_start,
    signal_in,
    start,
    train_new,
)

from gptlite.compute.limits import available_threads
from gptlite.config.loading import load_config
from gptlite.config.schema import RunConfig
from gptlite.data.dataset.prepared import Prepared
from gptlite.errors import ConfigError, Diverged, Interrupted, RunError
from gptlite.loggers.metrics import Listener
from gptlite.runs.run import Run
from gptlite.training import loop
from gptlite.training.reconcile import reconcile

HARD = {
    "model.dropout": 0.2,
    "train.micro_batch_size": 2,
    "run.precision": "bf16",
    "train.optimizer": "muon",
    "train.scheduled_sampling": 0.5,
    "train.ngram_teacher": 0.5,
    "log.every": 3,
    "log.grad_norms": True,
    "save.every": 5,
}


@pytest.fixture(scope="module")
def whole(tiny: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The run that was left alone."""
    return start(tiny, tmp_path_factory.mktemp("whole"), "whole")


@pytest.fixture(scope="module")
def whole_hard(tiny: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return start(tiny.with_values(HARD), tmp_path_factory.mktemp("whole"), "whole")


@pytest.mark.parametrize(
    ("values", "left_alone"), [({}, "whole"), (HARD, "whole_hard")], ids=["plain", "everything-random-in-pieces"]
)
@pytest.mark.parametrize("steps", [(1,), (5, 9), (11,)], ids=str)
def test_a_run_that_crashed_and_was_resumed_equals_one_left_alone(
    tiny, tmp_path, monkeypatch, request, values, left_alone, steps
):
    for i, step in enumerate(steps):
        with monkeypatch.context() as patch:
            crash_at(patch, step)
            with pytest.raises(Crash):
                start(tiny.with_values(values), tmp_path, "cut") if i == 0 else resume(Run(tmp_path / "cut"))
    unfinished = tmp_path / "cut/checkpoints/step-00000099.tmp-77-ab"
    unfinished.mkdir()
    assert_same_end(request.getfixturevalue(left_alone), resume(Run(tmp_path / "cut")).run)
    assert not unfinished.exists()


def test_the_final_state_depends_on_the_seed(tiny, tmp_path, whole):
    other = start(tiny.with_values({"run.seed": 1}), tmp_path, "other")
    with pytest.raises(AssertionError):
        assert_same_end(whole, other)


class Lines(Listener):
    """Hears what is said while a signal is handled."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def say_at_once(self, line: str) -> None:
        self.heard.append(line)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_after_the_update_and_says_how_to_go_on(tiny, tmp_path, monkeypatch, whole, signum):
    listener = Lines()
    with monkeypatch.context() as patch:
        signal_in(patch, 6, signum)
        with pytest.raises(
            Interrupted, match=r"^run cut: stopped and saved after step 7 \(SIG(INT|TERM)\)$"
        ) as stopped:
            train_new(tiny, root=tmp_path, base="tiny", name="cut", listener=listener)
    assert stopped.value.exit_code == 128 + signum
    assert stopped.value.handle == Run(tmp_path / "cut").handle
    again = " (press Ctrl-C again to stop at once)" if signum == signal.SIGINT else ""
    assert listener.heard == [f"stopping after this update{again}"]
    cut = Run(tmp_path / "cut")
    assert final(cut).step == 7
    assert not cut.finished
    resume(cut)
    assert cut.finished
    assert_same_end(whole, cut)


def test_the_same_signal_again_gives_up_at_once_and_the_last_checkpoint_stands(tiny, tmp_path, monkeypatch, whole):
    before = signal.getsignal(signal.SIGINT)
    with monkeypatch.context() as patch:
        signal_in(patch, 6, signal.SIGINT, signal.SIGINT)
        with pytest.raises(
            Interrupted, match=r"^run cut: stopped at once; the last checkpoint is kept \(SIGINT\)$"
        ) as ended:
            start(tiny, tmp_path, "cut")
    assert ended.value.exit_code == 130
    assert signal.getsignal(signal.SIGINT) is before
    cut = Run(tmp_path / "cut")
    assert final(cut).step == 4
    resume(cut)
    assert_same_end(whole, cut)


def test_the_saved_config_repeats_the_run_from_another_folder(tmp_path, monkeypatch, whole):
    monkeypatch.chdir(tmp_path)
    saved = load_config(whole.path / "config.yaml")
    assert "whole" not in whole.config_text()
    assert Path(saved.data.source).is_absolute()
    assert not [value for section in saved.model_dump().values() for value in section.values() if value == "auto"]
    assert_same_end(whole, start(saved, tmp_path / "runs", "second"))


def test_a_run_keeps_what_was_chosen_and_why_where_auto_would_choose_otherwise(tiny, tmp_path, monkeypatch):
    cfg = tiny.with_values({"run.threads": "auto", "train.max_steps": 6})
    monkeypatch.setenv("GPTLITE_THREADS", "1")
    whole = start(cfg, tmp_path, "whole")
    with monkeypatch.context() as patch:
        crash_at(patch, 4)
        with pytest.raises(Crash):
            start(cfg, tmp_path, "cut")
    cut = Run(tmp_path / "cut")
    config, info = cut.config_text(), cut.info
    assert "threads: 1\n" in config
    assert info["reasons"]["run.threads"] == {"value": 1, "reason": "GPTLITE_THREADS allows no more"}
    # Another machine, where auto would take three.
    monkeypatch.setenv("GPTLITE_THREADS", "3")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(9), raising=False)
    assert available_threads(tmp_path).value == 3
    resume_or_start(cfg, root=tmp_path, name="cut")
    assert cut.config_text() == config
    assert cut.info["reasons"] == info["reasons"]
    assert_same_end(whole, cut)


def test_a_run_goes_on_without_its_text(tiny, tmp_path, monkeypatch):
    text = tmp_path / "moved.txt"
    text.write_bytes(Path(tiny.data.source).read_bytes())
    cfg = tiny.with_values({"data.source": str(text)})
    whole = start(cfg, tmp_path / "runs", "whole")
    with monkeypatch.context() as patch:
        crash_at(patch, 6)
        with pytest.raises(Crash):
            start(cfg, tmp_path / "runs", "cut")
    text.unlink()
    assert_same_end(whole, resume(Run(tmp_path / "runs" / "cut")).run)


def test_continue_starts_a_run_once_and_then_goes_on_with_it(tiny, tmp_path, monkeypatch, whole):
    with monkeypatch.context() as patch:
        crash_at(patch, 5)
        with pytest.raises(Crash):
            resume_or_start(tiny, root=tmp_path, name="y")
    run = resume_or_start(tiny, root=tmp_path, name="y").run
    assert_same_end(whole, run)
    again = resume_or_start(tiny, root=tmp_path, name="y")
    assert again.state.step == 12
    assert_same_end(whole, run)


def test_a_run_of_epochs_killed_at_any_moment_ends_as_one_of_so_many_updates(tiny, tmp_path, monkeypatch, whole):
    n_windows = (Prepared(Path(whole.info["prepared"])).manifest.train.tokens - 16) // 16
    # Eleven batches of 8 and a half.
    cfg = tiny.with_values({"train.max_steps": None, "train.epochs": 11.5 * 8 / n_windows})
    with monkeypatch.context() as patch:
        crash_at(patch, 5)
        with pytest.raises(Crash):
            resume_or_start(cfg, root=tmp_path, name="e")
    run = Run(tmp_path / "e")
    assert load_config(run.path / "config.yaml").train.max_steps == 12
    assert_same_end(whole, resume_or_start(cfg, root=tmp_path, name="e").run)


def test_what_would_change_the_result_is_refused_and_both_sides_are_named(tiny, tmp_path):
    run = start(tiny, tmp_path, "a")
    wanted = tiny.with_values({"train.lr": 0.5, "model.n_embd": 32, "train.max_steps": 14})
    with pytest.raises(ConfigError) as refused:
        resume(run, wanted)
    assert [str(problem) for problem in refused.value.problems] == [
        "run a: model.n_embd is 16 in this run and cannot become 32. Start a new run instead.",
        "run a: train.lr is 0.02 in this run and cannot become 0.5. Start a new run instead.",
    ]


def test_a_finished_run_goes_on_when_it_is_given_more_updates(tiny, tmp_path):
    run = start(tiny, tmp_path, "a")
    longer = resume(run, tiny.with_values({"train.max_steps": 14, "run.threads": 1}))
    assert longer.state.step == final(run).step == 14
    assert [line["step"] for line in numbers(run) if line["split"] == "train"] == list(range(1, 15))


def test_auto_stands_for_what_was_chosen_only_where_it_is_the_default():
    saved = RunConfig().with_values({"run.threads": 3})
    prompt, source = (RunConfig().with_values({key: "auto"}) for key in ("eval.prompt", "data.source"))
    assert reconcile(saved, prompt, "a") == saved.with_values({"eval.prompt": "auto"})
    with pytest.raises(ConfigError, match=r"data\.source is python-stdlib in this run and cannot become auto"):
        reconcile(saved, source, "a")


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("n_layer: 1", "n_layer: 2", r"model\.n_layer=1, and the run has 2"),
        ("optimizer: adamw", "optimizer: muon", r"train\.optimizer=adamw, and the run has muon"),
    ],
)
def test_a_config_that_does_not_fit_its_checkpoint_is_refused_before_anything_is_read_wrongly(
    tiny, tmp_path, old, new, problem
):
    run = start(tiny.with_values({"train.optimizer": "adamw", "train.max_steps": 2}), tmp_path, "a")
    assert old in run.config_text()
    run.write_setup(run.info, run.config_text().replace(old, new))
    with pytest.raises(RunError, match=f"step-00000002: the checkpoint was trained with {problem}"):
        resume(run)


def test_other_text_under_the_same_name_is_refused(tiny, tmp_path):
    text = tmp_path / "moved.txt"
    text.write_bytes(Path(tiny.data.source).read_bytes())
    cfg = tiny.with_values({"data.source": str(text)})
    resume_or_start(cfg, root=tmp_path / "runs", name="y")
    text.write_text(text.read_text() + "more")
    with pytest.raises(RunError, match="the text or its settings have changed"):
        resume_or_start(cfg, root=tmp_path / "runs", name="y")


def test_divergence_keeps_the_last_checkpoint_and_the_run_unfinished(tiny, tmp_path, monkeypatch):
    real = loop.train_step

    def train_step(trainer, at, *rest):
        if at == 6:
            with torch.no_grad():
                trainer.model.token_embedding.weight.fill_(float("nan"))
        return real(trainer, at, *rest)

    monkeypatch.setattr(loop, "train_step", train_step)
    with pytest.raises(Diverged, match="step 7: the loss is nan"):
        start(tiny, tmp_path, "a")
    run = Run(tmp_path / "a")
    assert final(run).step == 4
    assert all(t.isfinite().all() for t in final(run).read_tensors("model.safetensors").values())
    assert not run.finished
    assert run.diverged
    monkeypatch.undo()
    resume(run)
    assert run.finished
    assert not run.diverged
