"""train.max_minutes, by a clock that the test turns."""

from __future__ import annotations

import json
import signal

import pytest

from gptlite.config.finding import find_config
from gptlite.config.loading import load_config
from gptlite.config.schema import RunConfig
from gptlite.errors import ConfigError, Interrupted
from gptlite.runs.checkpoint import valid_checkpoints
from gptlite.runs.rundir import Run
from gptlite.training import launch, loop


@pytest.fixture
def one_minute(tiny: RunConfig) -> RunConfig:
    values = {"train.max_steps": None, "train.max_minutes": 1.0, "train.warmup_steps": 0, "train.lr": 1.0}
    return tiny.with_values({**values, "eval.every": 10, "save.every": 10, "train.schedule": "linear"})


def rates(run: Run) -> list[float]:
    lines = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    return [line["lr"] for line in lines if line["split"] == "train"]


def test_updates_and_evaluations_fill_the_minutes_and_the_rate_falls_with_the_clock(one_minute, tmp_path, hands):
    run = launch.start(one_minute, root=tmp_path, base="tiny", name="a").run
    # 10 updates end at 20, a look at 24, 10 updates at 44, a look at 48, 4 updates at 56: the last look takes the rest.
    assert hands.seconds == 60
    assert run.finished
    assert valid_checkpoints(run.checkpoints, check_hashes=True)[-1].step == 24
    first = [1 - 2 * i / 60 for i in range(10)]  # how long a look takes is known after the first
    assert rates(run) == pytest.approx([*first, *(1 - (2 * i + 4 * (i // 10)) / 56 for i in range(10, 24))])


def test_a_stopped_run_goes_on_with_the_time_that_was_left(one_minute, tmp_path, hands, monkeypatch):
    real = loop.train_step

    def stop_at_five(*args):
        if args[3] == 4:
            signal.raise_signal(signal.SIGINT)
        return real(*args)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "train_step", stop_at_five)
        with pytest.raises(Interrupted, match=r"after step 5, 0\.2 of 1 minutes"):
            launch.start(one_minute, root=tmp_path, base="tiny", name="b")
    hands.seconds += 1000  # nobody trained meanwhile
    run = launch.resume(Run(tmp_path / "b")).run
    assert hands.seconds == 1060
    assert len(rates(run)) == 24


def test_minutes_that_are_used_up_at_once_end_with_a_look(one_minute, tmp_path, hands):
    run = launch.start(one_minute.with_values({"train.max_minutes": 0.05}), root=tmp_path, base="tiny", name="c").run
    assert run.finished
    assert valid_checkpoints(run.checkpoints, check_hashes=True)[-1].step == 2


def test_minutes_on_the_command_line_replace_the_updates_of_the_config_and_back():
    shipped = find_config("small.yaml")
    cfg = load_config(shipped, ["train.max_minutes=3"])
    assert (cfg.train.updates, cfg.train.max_minutes) == (None, 3)
    assert load_config(shipped, ["train.max_minutes=null"]).train.updates == load_config(shipped).train.updates


def test_a_run_has_one_length():
    with pytest.raises(ConfigError) as refused:
        load_config(None, ["train.max_minutes=3", "train.max_steps=100"])
    (problem,) = refused.value.problems
    assert problem.startswith("--set: train.max_steps = 100: null, since max_minutes (3) says how long")
