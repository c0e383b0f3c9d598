"""Processes that train the runs of a sweep, here stood in for by small ones that train nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from gptlite.cli.sweep import workers as module
from gptlite.cli.sweep.sweep_runs import SweepRun, first_failure, share_of_threads, sweep_runs_of
from gptlite.cli.sweep.workers import Worker, WorkerPool
from gptlite.config.grid import SweepAxis, points
from gptlite.config.loading import dump_config
from gptlite.config.schema import RunConfig
from gptlite.errors import ConfigError, Interrupted
from gptlite.training.launch import with_absolute_paths
from gptlite.training.signals import Signals

FINISH = "open('finished.json', 'w').close()"
RECORD = """
import signal, time
def note(signum, frame):
    open('signals', 'a').write(f'{signum} ')
    raise SystemExit(128 + signum)
signal.signal(signal.SIGINT, note)
signal.signal(signal.SIGTERM, note)
open('ready', 'w').close()
time.sleep(60)
"""


class Told:
    """A report that remembers."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        self.lines: list[str] = []
        self.at_look: Callable[[], None] = lambda: None
        self.at_wait: Callable[[], None] = lambda: None

    def started(self, task: SweepRun) -> None:
        self.events.append(("started", task.run.name))

    def said(self, task: SweepRun, line: str) -> None:
        self.lines.append(line)

    def ended(self, task: SweepRun, code: int) -> None:
        self.events.append(("ended", task.run.name))

    def waits(self, task: SweepRun) -> None:
        self.events.append(("waits", task.run.name))
        self.at_wait()

    def look(self) -> None:
        self.at_look()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POLL", 0.005)


@pytest.fixture
def tasks(tmp_path: Path) -> list[SweepRun]:
    """Three runs that were begun."""
    cfg = RunConfig().with_values({"run.dir": str(tmp_path)})
    grid = points([SweepAxis("run.seed", (1, 2, 3))], "s")
    found = sweep_runs_of(grid, [cfg.with_values(point.values) for point in grid])
    for task in found:
        task.run.path.mkdir()
        task.run.write_config(dump_config(with_absolute_paths(task.cfg)))
    return found


def process(task: SweepRun, code: str) -> Worker:
    """A process in a run's folder."""
    stderr = module.unnamed_file()
    command = [sys.executable, "-S", "-c", code]
    return Worker(task, subprocess.Popen(command, cwd=task.run.path, stderr=stderr), stderr)


def crew_of(tasks: list[SweepRun], codes: Mapping[int, str], jobs: int, told: Told) -> WorkerPool:
    """Processes that finish, except those of `codes`, by the place of their run."""
    return WorkerPool(tasks, lambda task: process(task, codes.get(tasks.index(task), FINISH)), jobs, told)


def signals() -> Signals:
    return Signals("sweep s", "go on", lambda line: None)


def order(told: Told, word: str) -> list[int]:
    """The seeds of the runs of which this was told, in order."""
    return [int(name[-1]) for event, name in told.events if event == word]


def test_runs_start_in_their_order_as_hands_are_free(tasks):
    told = Told()
    crew = crew_of(tasks, {0: f"import time; time.sleep(0.3); {FINISH}"}, 2, told)
    crew.work(signals())
    assert order(told, "started") == [1, 2, 3]
    assert sorted(order(told, "ended")) == [1, 2, 3]
    assert told.events[:2] == [("started", tasks[0].run.name), ("started", tasks[1].run.name)]
    assert told.events[2][0] == "ended"  # the third starts where one has left
    assert crew.codes == dict.fromkeys((task.run.name for task in tasks), 0)
    assert not crew.cut_short


def test_runs_that_are_over_are_kept_unless_more_is_asked_of_them(tasks):
    tasks[0].run.finish({})
    (tasks[1].run.path / "diverged.json").write_text("{}")
    told = Told()
    crew_of(tasks, {}, 1, told).work(signals())
    assert order(told, "started") == [3]
    more = [SweepRun(task.point, task.cfg.with_values({"train.max_steps": 5000}), task.run) for task in tasks]
    assert [task.is_done for task in more] == [False, False, False]


def test_a_run_that_another_process_trains_comes_last_and_is_waited_for(tasks):
    told = Told()
    with ExitStack() as held:
        held.enter_context(tasks[0].run.lock())
        told.at_wait = held.close
        crew_of(tasks, {}, 1, told).work(signals())
    assert order(told, "started") == [2, 3, 1]
    assert order(told, "waits") == [1]


def test_a_run_that_another_process_finishes_is_not_started_again(tasks):
    told = Told()
    with ExitStack() as held:
        held.enter_context(tasks[1].run.lock())

        def finished() -> None:
            tasks[1].run.finish({})
            held.close()

        told.at_wait = finished
        crew_of(tasks, {}, 2, told).work(signals())
    assert sorted(order(told, "started")) == [1, 3]


def test_a_run_that_another_process_took_first_is_tried_again(tasks):
    told, held = Told(), ExitStack()
    begun = []

    def start(task: SweepRun) -> Worker:
        begun.append(task)
        if len(begun) == 1:  # between our look at the lock and the process's
            held.enter_context(task.run.lock())
            return process(task, "raise SystemExit(2)")
        return process(task, FINISH)

    told.at_wait = held.close
    crew = WorkerPool(tasks, start, 1, told)
    crew.work(signals())
    assert [task.cfg.run.seed for task in begun] == [1, 2, 3, 1]
    assert set(crew.codes.values()) == {0}


def test_failures_do_not_stop_the_others_and_the_first_of_the_grid_is_the_answer(tasks):
    told = Told()
    deadly = "import os; os.kill(os.getpid(), 9)"
    crew = crew_of(tasks, {1: deadly, 2: "import sys; print('error: no', file=sys.stderr); sys.exit(2)"}, 3, told)
    crew.work(signals())
    assert [crew.codes[task.run.name] for task in tasks] == [0, 137, 2]
    assert told.lines == ["error: no"]
    assert first_failure(tasks, crew.codes) == 137
    (tasks[0].run.path / "diverged.json").write_text("{}")
    assert first_failure(tasks, {}) == 3
    assert first_failure(tasks[1:], {tasks[1].run.name: 0}) == 0


def test_a_failure_of_the_disk_ends_the_sweep_and_lets_the_others_save(tasks):
    told = Told()
    waits = "import os, time\nwhile not os.path.exists('../{}/ready'): time.sleep(0.01)\nraise SystemExit(4)"
    crew = crew_of(tasks, {0: RECORD, 1: waits.format(tasks[0].run.name)}, 2, told)
    crew.work(signals())
    assert crew.cut_short
    assert order(told, "started") == [1, 2]
    assert (tasks[0].run.path / "signals").read_text() == f"{int(signal.SIGTERM)} "


def test_a_run_that_cannot_be_started_any_more_lets_the_others_save(tasks):
    def start(task: SweepRun) -> Worker:
        if task is tasks[0]:
            return process(task, RECORD)
        while not (tasks[0].run.path / "ready").exists():
            time.sleep(0.005)
        raise ConfigError("changed")

    with pytest.raises(ConfigError, match="changed"):
        WorkerPool(tasks, start, 2, Told()).work(signals())
    assert (tasks[0].run.path / "signals").read_text() == f"{int(signal.SIGTERM)} "


@pytest.mark.parametrize("n_left", [0, 2])
def test_a_signal_that_ends_all_processes_before_we_look_still_cuts_the_sweep_short(tasks, n_left):
    told, watch = Told(), signals()

    def start(task: SweepRun) -> Worker:
        child = process(task, "raise SystemExit(143)")
        child.process.wait()
        if task is tasks[-1 - n_left]:
            os.kill(os.getpid(), signal.SIGTERM)
        return child

    crew = WorkerPool(tasks, start, 1, told)
    crew.work(watch)
    assert crew.cut_short
    assert len(order(told, "started")) == 3 - n_left


@pytest.mark.parametrize(("sent", "passed_on"), [(signal.SIGINT, signal.SIGTERM), (signal.SIGTERM, signal.SIGINT)])
def test_a_signal_is_passed_on_once_as_the_other_one(tasks, sent, passed_on):
    told, watch = Told(), signals()
    crew = crew_of(tasks, {0: RECORD, 1: RECORD}, 2, told)

    def interrupt() -> None:
        if not watch.received and all((task.run.path / "ready").exists() for task in tasks[:2]):
            os.kill(os.getpid(), sent)

    told.at_look = interrupt
    crew.work(watch)
    assert (watch.received, crew.cut_short) == (sent, True)
    assert order(told, "started") == [1, 2]
    assert [(task.run.path / "signals").read_text() for task in tasks[:2]] == [f"{int(passed_on)} "] * 2


def test_the_same_signal_again_ends_every_process_at_once(tasks):
    told = Told()
    told.at_look = lambda: os.kill(os.getpid(), signal.SIGINT)
    children: list[Worker] = []

    def start(task: SweepRun) -> Worker:
        children.append(process(task, "import signal, time\nsignal.signal(15, signal.SIG_IGN)\ntime.sleep(60)"))
        return children[-1]

    with pytest.raises(Interrupted, match="told twice, stopped at once"):
        WorkerPool(tasks, start, 2, told).work(signals())
    # A process that had no time to ignore the first one has died of that.
    assert {child.process.returncode for child in children} <= {-signal.SIGKILL, -signal.SIGTERM}
    assert len(children) == 2


def test_the_other_signal_after_one_is_told_once_and_gives_up_nothing():
    lines: list[str] = []
    watch = Signals("run r", "go on", lines.append)
    with watch.watched():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)
    assert watch.received == signal.SIGINT
    assert lines == ["stopping after this update; press again to give up"]


def test_runs_at_a_time_share_the_threads_that_one_would_have(monkeypatch):
    monkeypatch.setattr("gptlite.cli.sweep.sweep_runs.choose_threads", lambda: (8, ""))
    assert [share_of_threads(jobs, 6) for jobs in (1, 2, 3, 6, 16)] == [8, 4, 2, 1, 1]
    assert share_of_threads(16, 2) == 4
