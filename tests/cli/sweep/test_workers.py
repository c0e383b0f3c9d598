"""The worker pool of a sweep, with small processes in place of workers that train."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import Mock

import pytest

from gptlite.cli.sweep import workers as module
from gptlite.cli.sweep.sweep_runs import SweepRun, exit_code, sweep_runs, threads_per_run
from gptlite.cli.sweep.workers import Worker, WorkerPool
from gptlite.compute.choice import Choice
from gptlite.config.grid import SweepAxis, points
from gptlite.config.loading import dump_config
from gptlite.config.schema import RunConfig
from gptlite.errors import ConfigError, Interrupted, StorageError
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
    """A SweepProgress that remembers."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        self.lines: list[str] = []
        self.at_update: Callable[[], None] = lambda: None
        self.at_wait: Callable[[], None] = lambda: None

    def started(self, run: SweepRun) -> None:
        self.events.append(("started", run.name))

    def wrote(self, run: SweepRun, line: str) -> None:
        self.lines.append(line)

    def ended(self, run: SweepRun, code: int) -> None:
        self.events.append(("ended", run.name))

    def waiting(self, run: SweepRun) -> None:
        self.events.append(("waits", run.name))
        self.at_wait()

    def update(self) -> None:
        self.at_update()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POLL", 0.005)


@pytest.fixture
def runs(tmp_path: Path) -> list[SweepRun]:
    """Three runs that have started."""
    cfg = RunConfig().with_values({"run.dir": str(tmp_path)})
    grid = points([SweepAxis("run.seed", (1, 2, 3))], "s")
    found = sweep_runs(grid, [cfg.with_values(point.values) for point in grid])
    for run in found:
        run.path.mkdir()
        run.write_setup({}, dump_config(with_absolute_paths(run.cfg)))
    return found


def process(run: SweepRun, code: str) -> Worker:
    """Start a process in a run's folder."""
    stderr = module.open_stderr()
    command = [sys.executable, "-S", "-c", code]
    return Worker(run, subprocess.Popen(command, cwd=run.path, stderr=stderr), stderr)


def pool_of(runs: list[SweepRun], codes: Mapping[int, str], jobs: int, told: Told) -> WorkerPool:
    """A pool whose workers finish their runs; those at the places in `codes` run that code instead."""
    return WorkerPool(runs, lambda run: process(run, codes.get(runs.index(run), FINISH)), jobs, told)


def signals() -> Signals:
    return Signals("sweep s", "go on", lambda line: None)


def order(told: Told, word: str) -> list[int]:
    """The seeds of the runs with this event, in order."""
    return [int(name[-1]) for event, name in told.events if event == word]


IMPORT = """
import subprocess, sys
import safetensors
subprocess.run([sys.executable, "-c", "import safetensors"], check=True)
"""


def test_neither_a_worker_nor_what_it_starts_imports_from_the_working_directory(runs, tmp_path, monkeypatch):
    (tmp_path / "safetensors.py").write_text("raise SystemExit('imported')")
    with monkeypatch.context() as patched:
        started = Mock()
        patched.setattr(subprocess, "Popen", started)
        module.start(runs[0], [], {}, threads=1, to_terminal=True)
    command, environment = started.call_args.args[0], started.call_args.kwargs["env"]
    python = command[: command.index("-m")]
    subprocess.run([*python, "-c", IMPORT], cwd=tmp_path, env=environment, check=True)


def test_a_system_that_starts_no_more_processes_is_an_error_of_one_line(runs, monkeypatch):
    def popen(*_, **__):
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(subprocess, "Popen", popen)
    with pytest.raises(StorageError, match=r"python\S*: cannot start: Resource temporarily unavailable\."):
        module.start(runs[0], [], {}, threads=1, to_terminal=True)


def test_runs_start_in_order_as_jobs_become_free(runs):
    told = Told()
    pool = pool_of(runs, {0: f"import time; time.sleep(0.3); {FINISH}"}, 2, told)
    pool.work(signals())
    assert order(told, "started") == [1, 2, 3]
    assert sorted(order(told, "ended")) == [1, 2, 3]
    assert told.events[:2] == [("started", runs[0].name), ("started", runs[1].name)]
    assert told.events[2][0] == "ended"  # the third starts where one has left
    assert pool.codes == dict.fromkeys((run.name for run in runs), 0)
    assert not pool.cut_short


def test_ended_runs_are_skipped_unless_they_are_to_train_longer(runs):
    runs[0].finish({})
    (runs[1].path / "diverged.json").write_text("{}")
    told = Told()
    pool_of(runs, {}, 1, told).work(signals())
    assert order(told, "started") == [3]
    more = [SweepRun(run.path, run.point, run.cfg.with_values({"train.max_steps": 5000})) for run in runs]
    assert [run.is_done for run in more] == [False, False, False]


def test_a_run_locked_by_another_process_is_waited_for_and_comes_last(runs):
    told = Told()
    with ExitStack() as held:
        held.enter_context(runs[0].lock())
        told.at_wait = held.close
        pool_of(runs, {}, 1, told).work(signals())
    assert order(told, "started") == [2, 3, 1]
    assert order(told, "waits") == [1]


def test_a_run_that_another_process_finishes_is_not_started_again(runs):
    told = Told()
    with ExitStack() as held:
        held.enter_context(runs[1].lock())

        def finished() -> None:
            runs[1].finish({})
            held.close()

        told.at_wait = finished
        pool_of(runs, {}, 2, told).work(signals())
    assert sorted(order(told, "started")) == [1, 3]


def test_a_run_that_another_process_locked_first_is_tried_again(runs):
    told, held = Told(), ExitStack()
    begun = []

    def start(run: SweepRun) -> Worker:
        begun.append(run)
        if len(begun) == 1:  # between our look at the lock and the process's
            held.enter_context(run.lock())
            return process(run, "raise SystemExit(2)")
        return process(run, FINISH)

    told.at_wait = held.close
    pool = WorkerPool(runs, start, 1, told)
    pool.work(signals())
    assert [run.cfg.run.seed for run in begun] == [1, 2, 3, 1]
    assert set(pool.codes.values()) == {0}


def test_failures_do_not_stop_the_others_and_the_first_sets_the_exit_code(runs):
    told = Told()
    deadly = "import os; os.kill(os.getpid(), 9)"
    pool = pool_of(runs, {1: deadly, 2: "import sys; print('error: no', file=sys.stderr); sys.exit(2)"}, 3, told)
    pool.work(signals())
    assert [pool.codes[run.name] for run in runs] == [0, 137, 2]
    assert told.lines == ["error: no"]
    assert exit_code(runs, pool.codes) == 137
    (runs[0].path / "diverged.json").write_text("{}")
    assert exit_code(runs, {}) == 3
    assert exit_code(runs[1:], {runs[1].name: 0}) == 0


def test_a_storage_error_ends_the_sweep_after_the_others_have_saved(runs):
    told = Told()
    waits = "import os, time\nwhile not os.path.exists('../{}/ready'): time.sleep(0.01)\nraise SystemExit(4)"
    pool = pool_of(runs, {0: RECORD, 1: waits.format(runs[0].name)}, 2, told)
    pool.work(signals())
    assert pool.cut_short
    assert order(told, "started") == [1, 2]
    assert (runs[0].path / "signals").read_text() == f"{int(signal.SIGTERM)} "


def test_an_error_in_starting_a_run_lets_the_others_save(runs):
    def start(run: SweepRun) -> Worker:
        if run is runs[0]:
            return process(run, RECORD)
        while not (runs[0].path / "ready").exists():
            time.sleep(0.005)
        raise ConfigError("changed")

    with pytest.raises(ConfigError, match="changed"):
        WorkerPool(runs, start, 2, Told()).work(signals())
    assert (runs[0].path / "signals").read_text() == f"{int(signal.SIGTERM)} "


@pytest.mark.parametrize("n_left", [0, 2])
def test_a_signal_that_ended_all_workers_before_the_check_still_cuts_the_sweep_short(runs, n_left):
    told, watch = Told(), signals()

    def start(run: SweepRun) -> Worker:
        worker = process(run, "raise SystemExit(143)")
        worker.process.wait()
        if run is runs[-1 - n_left]:
            os.kill(os.getpid(), signal.SIGTERM)
        return worker

    pool = WorkerPool(runs, start, 1, told)
    pool.work(watch)
    assert pool.cut_short
    assert len(order(told, "started")) == 3 - n_left


@pytest.mark.parametrize(("sent", "passed_on"), [(signal.SIGINT, signal.SIGTERM), (signal.SIGTERM, signal.SIGINT)])
def test_a_signal_is_passed_on_once_as_the_other_one(runs, sent, passed_on):
    told, watch = Told(), signals()
    pool = pool_of(runs, {0: RECORD, 1: RECORD}, 2, told)

    def interrupt() -> None:
        if not watch.received and all((run.path / "ready").exists() for run in runs[:2]):
            os.kill(os.getpid(), sent)

    told.at_update = interrupt
    pool.work(watch)
    assert (watch.received, pool.cut_short) == (sent, True)
    assert order(told, "started") == [1, 2]
    assert [(run.path / "signals").read_text() for run in runs[:2]] == [f"{int(passed_on)} "] * 2


def test_a_wish_to_save_is_passed_on_and_nothing_stops(runs):
    asked = "import signal\nsignal.signal(signal.SIGUSR1, lambda *_: open('asked', 'w').close())\n"
    waits = (
        f"import os, time\nopen('ready', 'w').close()\nwhile not os.path.exists('asked'): time.sleep(0.01)\n{FINISH}"
    )
    told, watch, sent = Told(), signals(), []

    def ask() -> None:
        if not sent and (runs[0].path / "ready").exists():
            sent.append(os.kill(os.getpid(), signal.SIGUSR1))

    told.at_update = ask
    pool = pool_of(runs[:1], {0: asked + waits}, 1, told)
    pool.work(watch)
    assert (pool.codes, pool.cut_short, watch.received) == ({runs[0].name: 0}, False, 0)


def test_the_same_signal_twice_kills_every_worker(runs):
    told = Told()
    told.at_update = lambda: os.kill(os.getpid(), signal.SIGINT)
    workers: list[Worker] = []

    def start(run: SweepRun) -> Worker:
        workers.append(process(run, "import signal, time\nsignal.signal(15, signal.SIG_IGN)\ntime.sleep(60)"))
        return workers[-1]

    with pytest.raises(Interrupted, match="stopped at once; the last checkpoint is kept"):
        WorkerPool(runs, start, 2, told).work(signals())
    # A process that had no time to ignore the first one has died of that.
    assert {worker.process.returncode for worker in workers} <= {-signal.SIGKILL, -signal.SIGTERM}
    assert len(workers) == 2


def test_another_signal_after_the_first_changes_nothing():
    lines: list[str] = []
    watch = Signals("run r", "go on", lines.append)
    with watch.watched():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)
    assert watch.received == signal.SIGINT
    assert lines == ["stopping after this update (press Ctrl-C again to stop at once)"]


def test_runs_that_train_at_a_time_share_the_threads(monkeypatch):
    monkeypatch.setattr("gptlite.cli.sweep.sweep_runs.available_threads", lambda: Choice(8, ""))
    assert [threads_per_run(jobs, 6) for jobs in (1, 2, 3, 6, 16)] == [8, 4, 2, 1, 1]
    assert threads_per_run(16, 2) == 4
