"""Signals to a training process: what is saved, the exit code, and an exact resume."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import threading
import time

import pytest
from training_runs import assert_same_end, final, numbers, resume, resume_or_start, signal_in, start, train_new

from gptlite.errors import Interrupted
from gptlite.loggers.metrics import Listener
from gptlite.runs.checkpoint import read_pointer, valid_checkpoints
from gptlite.runs.run import Run
from gptlite.training import loop, session
from gptlite.training.trainer import Trainer

STOPPING = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.fixture(scope="module")
def whole(tiny, tmp_path_factory):
    """The run that was left alone."""
    return start(tiny, tmp_path_factory.mktemp("whole"), "whole")


@pytest.mark.parametrize(("step", "signum"), [(7, signal.SIGINT), (7, signal.SIGTERM), (11, signal.SIGHUP)])
def test_a_signal_saves_after_the_update_says_how_to_go_on_and_leaves_a_due_evaluation_to_the_resume(
    tiny, tmp_path, monkeypatch, whole, step, signum
):
    listener = Lines()
    with monkeypatch.context() as patch:
        signal_in(patch, step, signum)
        patch.setattr(Trainer, "evaluate", evaluations_before(Trainer.evaluate, step // 4))
        message = rf"^run cut: stopped and saved after step {step + 1} \({signum.name}\)$"
        with pytest.raises(Interrupted, match=message) as stopped:
            train_new(tiny, root=tmp_path, name="cut", listener=listener)
    cut = Run(tmp_path / "cut")
    assert (stopped.value.exit_code, stopped.value.handle) == (128 + signum, cut.handle)
    again = " (press Ctrl-C again to stop at once)" if signum == signal.SIGINT else ""
    assert listener.at_once == [f"stopping after this update{again}"]
    assert not cut.finished
    assert final(cut).step == step + 1
    assert numbers(cut)[-1]["split"] == "train"
    resume(cut)
    assert cut.finished
    assert_same_end(whole, cut)
    ends = [(each.step, each.score) for each in (final(whole), final(cut))]
    assert ends[0] == ends[1]
    assert read_pointer(whole.checkpoints, "best") == read_pointer(cut.checkpoints, "best")


class Lines(Listener):
    """Hears what is said while a signal is handled."""

    def __init__(self):
        self.at_once = []

    def say_at_once(self, line):
        self.at_once.append(line)


def evaluations_before(evaluate, n):
    """`evaluate`, which fails the test when it is called more than n times."""
    calls = []

    def counted(trainer, tokens):
        calls.append(1)
        assert len(calls) <= n, "an evaluation after the signal"
        return evaluate(trainer, tokens)

    return counted


def test_a_kill_while_an_evaluation_is_made_up_loses_nothing(tiny, tmp_path, monkeypatch):
    tiny = tiny.with_values({"save.keep": 1})
    whole = start(tiny, tmp_path, "whole")
    with monkeypatch.context() as patch:
        signal_in(patch, 7, signal.SIGTERM)
        with pytest.raises(Interrupted):
            start(tiny, tmp_path, "cut")
    cut = Run(tmp_path / "cut")
    assert [each.step for each in valid_checkpoints(cut.checkpoints)] == [4, 8]  # 4 stands until 8 is replaced
    for place in ("save_checkpoint", "prune"):
        with monkeypatch.context() as patch:
            patch.setattr(f"gptlite.training.trainer.{place}", raise_crash)
            with pytest.raises(RuntimeError, match="power"):
                resume(cut)
    resume(cut)
    assert_same_end(whole, cut)


def raise_crash(*args, **kwargs):
    raise RuntimeError("power")


def test_sigusr1_saves_and_goes_on(tiny, tmp_path, monkeypatch):
    tiny = tiny.with_values({"save.every": 100, "eval.every": 100, "save.keep": 5})
    whole = start(tiny, tmp_path, "whole")
    with monkeypatch.context() as patch:
        signal_in(patch, 6, signal.SIGUSR1)
        asked = start(tiny, tmp_path, "asked")
    assert [each.step for each in valid_checkpoints(whole.checkpoints)] == [0, 12]
    assert [each.step for each in valid_checkpoints(asked.checkpoints)] == [0, 7, 12]
    assert asked.finished
    assert_same_end(whole, asked)


def test_a_stop_wins_over_a_wish_to_save(tiny, tmp_path, monkeypatch):
    signal_in(monkeypatch, 6, signal.SIGUSR1, signal.SIGHUP)
    with pytest.raises(Interrupted, match=r"after step 7 \(SIGHUP\)") as stopped:
        start(tiny, tmp_path, "cut")
    assert stopped.value.exit_code == 129


def test_the_time_in_which_ctrl_z_stopped_the_process_does_not_count(tiny, tmp_path, monkeypatch, whole):
    signal_in(monkeypatch, 6, signal.SIGTSTP)
    wakes = ["sh", "-c", 'for i in 1 2 3 4 5 6; do sleep 1.5; kill -CONT "$0"; done', str(os.getpid())]
    with subprocess.Popen(wakes) as waking:
        began_at = time.monotonic()
        run = start(tiny, tmp_path, "paused")
        seconds = time.monotonic() - began_at
        waking.kill()
    assert_same_end(whole, run)
    elapsed = json.loads((run.path / "metrics.jsonl").read_text().splitlines()[-1])["time"]["elapsed"]
    assert seconds > 1.0
    assert elapsed < seconds - 0.8


def test_signals_that_the_parent_ignored_stay_ignored(tiny, tmp_path, monkeypatch):
    before = {signum: signal.signal(signum, signal.SIG_IGN) for signum in (*STOPPING, signal.SIGUSR1)}
    try:
        signal_in(monkeypatch, 6, *before)
        assert start(tiny, tmp_path, "a").finished
        assert {signal.getsignal(signum) for signum in before} == {signal.SIG_IGN}
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


@pytest.mark.slow
@pytest.mark.parametrize("signums", [STOPPING, [signal.SIGUSR1]], ids=["stop", "save"])
def test_signals_at_random_times_also_in_saves_and_evaluations(tiny, tmp_path, monkeypatch, signums):
    monkeypatch.setattr("gptlite.training.trainer.SAMPLE_CHARACTERS", 6)  # or it would take most of the time
    monkeypatch.setattr("gptlite.training.throughput.SECONDS", 0)
    tiny = tiny.with_values({"train.max_steps": 30, "eval.every": 3, "save.every": 2})
    whole = start(tiny, tmp_path, "whole")
    cut = Run(tmp_path / "cut")
    moments = random.Random(os.urandom(8))
    at_once = 5 if signums == [signal.SIGUSR1] else 1  # which does not stop the run
    timers: list[threading.Timer] = []
    real = session.run_updates

    def train(*args):
        timers[:] = [threading.Timer(moments.uniform(0, 0.2), os.kill, (os.getpid(), signum)) for _ in range(at_once)]
        for timer in timers:
            timer.start()
        return real(*args)

    monkeypatch.setattr(session, "run_updates", train)
    sent = 0
    while sent < 24:
        signum = moments.choice(signums)
        before = signal.signal(signum, lambda number, frame: None)  # one that comes after training is lost
        error = None
        try:
            resume_or_start(tiny, root=tmp_path, name="cut")
        except Interrupted as interrupted:
            error = interrupted
        for timer in timers:
            timer.join()
        signal.signal(signum, before)
        if error is not None:
            assert error.exit_code == 128 + signum
            assert f"after step {final(cut).step} (" in str(error)
            sent += 1
            continue
        assert_same_end(whole, cut)
        sent += at_once * (signum == signal.SIGUSR1)
        with cut.lock():
            shutil.rmtree(cut.path)
    monkeypatch.setattr(session, "run_updates", real)
    resume_or_start(tiny, root=tmp_path, name="cut")
    assert_same_end(whole, cut)


def test_training_asks_for_signals_once_per_step_and_after_each_evaluation(tiny, tmp_path, monkeypatch):
    """One exchange between processes per step, no more: it is a message over the network."""
    asked: list[int] = []
    real = loop.Signals.take_request

    def take_request(signals):
        asked.append(1)
        return real(signals)

    monkeypatch.setattr(loop.Signals, "take_request", take_request)
    start(tiny, tmp_path, "a")
    assert len(asked) == 12 + 3
