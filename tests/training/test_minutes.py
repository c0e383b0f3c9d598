"""train.max_minutes, by a clock that the test turns."""

from __future__ import annotations

import json
import random
import signal

import pytest
from training_runs import Crash, assert_same_end, crash_at, final, numbers, resume, signal_in, start, train, train_new

from gptlite.config.loading import find_config, load_config
from gptlite.config.schema import RunConfig
from gptlite.data.preparing.prepare import prepare
from gptlite.errors import ConfigError, Interrupted, RunError
from gptlite.inference.score import Score
from gptlite.runs.checkpoint import valid_checkpoints
from gptlite.runs.run import Run
from gptlite.training import trainer
from gptlite.training.checkpointing import TrainState
from gptlite.training.dry_run import expected_evaluation_updates
from gptlite.training.launch import Request
from gptlite.training.trainer import build, resolve_here


@pytest.fixture
def one_minute(tiny: RunConfig) -> RunConfig:
    values = {"train.max_steps": None, "train.max_minutes": 1.0, "train.warmup_steps": 0, "train.lr": 1.0}
    return tiny.with_values({**values, "eval.every": 10, "save.every": 10, "train.schedule": "linear"})


def rates(run: Run) -> list[float]:
    lines = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    return [line["lr"] for line in lines if line["split"] == "train"]


def test_updates_and_evaluations_fill_the_minutes_and_the_rate_falls_with_the_clock(one_minute, tmp_path, hands):
    run = train_new(one_minute, root=tmp_path, name="a").run
    # 10 updates end at 20, a look at 24, 10 updates at 44, a look at 48, 4 updates at 56: the last look takes the rest.
    assert hands.seconds == 60
    assert run.finished
    assert valid_checkpoints(run.checkpoints)[-1].step == 24
    # The first update may be slow for reasons of its own, so the time of the last look is not known before the second.
    assert rates(run) == pytest.approx([1 - (2 * i + 4 * (i // 10)) / (60 if i == 1 else 56) for i in range(24)])


def evaluated(run: Run) -> list[int]:
    lines = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    return [line["step"] for line in lines if line["split"] == "val"]


def test_auto_evaluates_in_every_eighth_of_the_time_and_in_two_epochs(one_minute, tmp_path, hands, monkeypatch):
    hands.update, hands.look = 0.4, 0.8
    cfg = one_minute.with_values({"eval.every": "auto"})
    assert len(evaluated(train_new(cfg, root=tmp_path, name="a").run)) >= 8
    hands.seconds, hands.look = 0.0, 8.0  # then not more than a fifth of the time
    assert len(evaluated(train_new(cfg, root=tmp_path, name="c").run)) <= 2
    # 19 kB of characters are about 1,175 windows of 16 tokens: two epochs are four updates and a half of 512 windows.
    hands.update, hands.look = 0.1, 0.2
    wide = cfg.with_values({"train.batch_size": 512})
    crash_at(monkeypatch, 16)
    with pytest.raises(Crash):
        train_new(wide, root=tmp_path, name="b")
    assert evaluated(Run(tmp_path / "b")) == [8, 16]


# Evaluations were timed on the idle machine, and one of the busy machine ends with less time left than the last takes;
# or there is none before the last.
@pytest.mark.parametrize(("every", "within"), [(20, 3), (1000, 1)])
def test_a_machine_that_becomes_busy_ends_on_the_deadline_all_the_same(one_minute, tmp_path, hands, every, within):
    hands.update, hands.busy_from = 0.5, 30.0
    cfg = one_minute.with_values({"eval.every": every, "save.every": every})
    assert train_new(cfg, root=tmp_path, name="d").run.finished
    assert abs(hands.seconds - 60) <= within


def test_time_is_left_for_the_last_checkpoint_as_the_one_of_the_start_and_then_the_newest_took(
    one_minute, tmp_path, hands, monkeypatch
):
    real, seconds = trainer.Trainer.save, iter([1, 5, 5, 5])

    def save(*args, **kwargs):
        hands.take(next(seconds))
        return real(*args, **kwargs)

    monkeypatch.setattr(trainer.Trainer, "save", save)
    run = train_new(one_minute, root=tmp_path, name="e").run
    # An evaluation takes 4 seconds; it and its checkpoint come after 10 and 20 updates, and leave time for one more.
    first = [1 - 2 * i / (60 - 1 if i == 1 else 60 - 4 - 1) for i in range(10)]
    later = [1 - min(1, (2 * i + (4 + 5) * (i // 10)) / (60 - 4 - 5)) for i in range(10, 21)]
    assert rates(run) == pytest.approx([*first, *later])


def test_an_update_that_was_held_up_does_not_end_the_run_early():
    state = TrainState(evaluation_updates=30.0)
    for i in range(20):
        state = state.after_update(8, now=0.1 * (i + 1))
    held_up = state.after_update(8, now=2.0 + 60 * 0.1)
    assert held_up.final_eval_seconds <= 1.1 * state.final_eval_seconds


def test_the_time_for_the_last_evaluation_is_what_was_measured_and_follows_the_updates():
    state = TrainState(evaluation_updates=3.0, save_seconds=1.0)
    assert state.final_eval_seconds == 1.0  # nothing is known of updates yet
    for now in (2.0, 4.0):
        state = state.after_update(8, now)
    assert state.final_eval_seconds == 3 * 2 + 1
    state = state.after_pause(evaluation=10.0, save=0.0)
    assert (state.elapsed, state.final_eval_seconds) == (14.0, 10 + 1)
    state = state.after_pause(evaluation=0.0, save=0.5)
    assert (state.elapsed, state.final_eval_seconds) == (14.5, 10 + 0.5)
    state = state.after_update(8, 14.5 + 3.5)  # the mean of 2 and 3.5: the first does not count
    assert state.final_eval_seconds == pytest.approx(10 * 2.75 / 2 + 0.5)


def test_a_first_update_that_waits_for_a_compiler_does_not_end_the_run_early():
    state = TrainState(evaluation_updates=30.0)
    for i in range(3):
        state = state.after_update(8, now=25.0 + 0.1 * i)
    assert state.final_eval_seconds == pytest.approx(30 * 0.1)


def test_an_evaluation_takes_a_third_of_the_arithmetic_of_training_on_its_tokens(one_minute, text_file):
    prepared = prepare(one_minute.data, one_minute.tokenizer)

    def expected(optimizer: str) -> float:
        cfg = one_minute.with_values({"train.optimizer": optimizer})
        return expected_evaluation_updates(build(resolve_here(cfg, prepared).cfg, prepared))

    tokens, trained = prepared.manifest.val.tokens, 8 * 16
    assert expected("adamw") == pytest.approx(tokens / (3 * trained))
    assert 0 < expected("muon") < tokens / (3 * trained)  # an update takes longer


def test_a_stopped_run_goes_on_with_the_time_that_was_left(one_minute, tmp_path, hands, monkeypatch):
    with monkeypatch.context() as patch:
        signal_in(patch, 4, signal.SIGINT)
        with pytest.raises(Interrupted, match="after step 5 "):
            train_new(one_minute, root=tmp_path, name="b")
    hands.seconds += 1000  # nobody trained meanwhile
    run = resume(Run(tmp_path / "b")).run
    assert hands.seconds == 1060
    assert len(rates(run)) == 24


def test_minutes_that_are_used_up_at_once_end_with_a_look(one_minute, tmp_path, hands):
    run = train_new(one_minute.with_values({"train.max_minutes": 0.05}), root=tmp_path, name="c").run
    assert run.finished
    assert valid_checkpoints(run.checkpoints)[-1].step == 2


def test_minutes_or_epochs_on_the_command_line_replace_the_updates_of_the_config_and_back():
    shipped = find_config("small.yaml")
    cfg = load_config(shipped, ["train.epochs=3"])
    assert (cfg.train.updates, cfg.train.max_steps, cfg.train.epochs) == (None, None, 3)
    cfg = load_config(shipped, ["train.max_minutes=3"])
    assert (cfg.train.updates, cfg.train.max_minutes) == (None, 3)
    assert load_config(shipped, ["train.max_minutes=null"]).train.updates == load_config(shipped).train.updates


def test_an_evaluation_as_good_as_the_best_is_no_new_best():
    score = Score(nats=30.0, tokens=10, bytes=10, characters=10)
    first = TrainState(step=4).after_eval(score)
    again = first.after_update(128, 1.0).after_eval(score)
    assert (first.best_step, first.evaluations_since_best, first.is_new_best) == (4, 0, True)
    assert (again.best_step, again.evaluations_since_best, again.is_new_best) == (4, 1, False)


def test_an_evaluation_after_the_first_update_which_is_not_timed_is_not_measured_in_updates():
    state = TrainState(evaluation_updates=3.0).after_update(10, now=5.0)
    assert state.after_pause(evaluation=2.0, save=0.5).evaluation_updates == 3.0


def vary(hands, monkeypatch, seed):
    """Let an update take from 0.3 to 3 s: another process wants the processor now and then."""
    rng = random.Random(seed)
    monkeypatch.setattr(type(hands), "update", property(lambda _: rng.choice([0.3, 0.5, 0.5, 3.0])), raising=False)


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"eval.every": "auto", "log.every": 7},
        {"train.patience": 2, "log.every": 7, "train.optimizer": "adamw", "train.lr": 1e-30, "eval.every": 5},
        {"train.scheduled_sampling": 0.5, "model.dropout": 0.1, "train.optimizer": "muon"},
    ],
)
def test_a_run_by_the_clock_repeats_with_its_clock(one_minute, tmp_path, hands, monkeypatch, keys):
    cfg = one_minute.with_values(keys)
    with monkeypatch.context() as patch:
        vary(hands, patch, 1)
        run = start(cfg, tmp_path, "a")
    if "train.patience" in keys:
        assert hands.seconds < 50  # it ended by patience, between two lines of the log
        assert final(run).step % 7
    again = train(Request(cfg, "again", clock=run, root=tmp_path)).run
    assert_same_end(run, again)
    assert_same_end(run, train(Request(cfg, "third", clock=again, root=tmp_path)).run)
    hands.seconds, hands.update = 0.0, 1.0
    assert numbers(start(cfg, tmp_path, "b")) != numbers(run)  # on a steady clock it is another run


def test_a_killed_and_stopped_run_by_the_clock_repeats_as_it_went_and_so_does_a_killed_repetition(
    one_minute, tmp_path, hands, monkeypatch
):
    cfg = one_minute.with_values({"log.every": 7})
    with monkeypatch.context() as patch:
        vary(hands, patch, 2)
        crash_at(patch, 14)
        with pytest.raises(Crash):
            start(cfg, tmp_path, "a")
    run = Run(tmp_path / "a")
    with monkeypatch.context() as patch:
        vary(hands, patch, 3)
        signal_in(patch, 24, signal.SIGINT)
        with pytest.raises(Interrupted):
            resume(run)
    with monkeypatch.context() as patch:
        vary(hands, patch, 4)
        resume(run)
    with monkeypatch.context() as patch:
        crash_at(patch, 17)
        with pytest.raises(Crash):
            train(Request(cfg, "again", clock=run, root=tmp_path))
    again = resume(Run(tmp_path / "again")).run
    assert_same_end(run, again)
    with pytest.raises(
        ConfigError, match="run again: it repeats the clock of another run, so section train cannot change"
    ):
        train(Request(run=again, changes=["train.max_minutes=2"]))


def test_a_run_whose_clock_is_not_there_is_refused(one_minute, tiny, tmp_path, hands, monkeypatch):
    counted = start(tiny, tmp_path, "counted")
    with pytest.raises(RunError, match="run counted: it has no record of its clock: it counted updates"):
        train(Request(one_minute, "x", clock=counted, root=tmp_path))
    with monkeypatch.context() as patch:
        signal_in(patch, 4, signal.SIGINT)
        with pytest.raises(Interrupted):
            start(one_minute, tmp_path, "b")
    with pytest.raises(RunError, match=r"run b: it is not finished\. Resume it first"):
        train(Request(one_minute, "x", clock=Run(tmp_path / "b"), root=tmp_path))
    assert not (tmp_path / "x").exists()
