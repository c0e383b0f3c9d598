"""The workers of a sweep, with small processes in place of those that train."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from unittest.mock import Mock

import pytest

from gptlite.cli import sweep as module
from gptlite.cli.sweep import SweepRun, Worker, environment_for, start, sweep_runs, train_runs
from gptlite.cli.terminal import Console
from gptlite.compute.choice import Choice
from gptlite.config.grid import points
from gptlite.config.loading import dump_config
from gptlite.config.schema import RunConfig
from gptlite.errors import ConfigError, Interrupted, StorageError
from gptlite.formatting import say_nothing
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
SAVE_ONCE = f"""
import os, signal, time
signal.signal(signal.SIGUSR1, lambda *_: open('asked', 'w').close())
open('ready', 'w').close()
while not os.path.exists('asked'): time.sleep(0.01)
{FINISH}
"""


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POLL", 0.005)


@pytest.fixture
def runs(tmp_path: Path) -> list[SweepRun]:
    """Three runs that have started."""
    cfg = RunConfig().with_values({"run.dir": str(tmp_path)})
    grid = points({"run.seed": [1, 2, 3]}, "s")
    made = sweep_runs(grid, [cfg.with_values(point.values) for point in grid])
    for run in made:
        run.path.mkdir()
        run.write_setup({}, dump_config(with_absolute_paths(run.cfg)))
    return made


def process(run: SweepRun, code: str) -> Worker:
    """Start a process in a run's folder."""
    return Worker(run, subprocess.Popen([sys.executable, "-S", "-c", code], cwd=run.path))


class Polled(Signals):
    """Signals that call a function whenever they are looked at."""

    at_poll: Callable[[], object] = staticmethod(lambda: None)

    def take_request(self) -> int:
        self.at_poll()
        return super().take_request()


def train(runs: list[SweepRun], codes: Mapping[int, str], jobs: int, at_poll: Callable[[], object] = lambda: None):
    """Let workers finish the runs, or run the code at their places. Returns the exit codes and the signal received."""
    signals = Polled("sweep s", "go on", say_nothing)
    signals.at_poll = at_poll
    start_one = lambda run: process(run, codes.get(runs.index(run), FINISH))  # noqa: E731
    done = train_runs(runs, start_one, jobs, Console().say, signals)
    return [done.get(run.name) for run in runs], signals.received


def ready(runs: list[SweepRun]) -> bool:
    return all((run.path / "ready").exists() for run in runs)


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
        start(runs[0], [], environment_for(1))
    command, environment = started.call_args.args[0], started.call_args.kwargs["env"]
    python = command[: command.index("-m")]
    done = subprocess.run([*python, "-c", IMPORT], cwd=tmp_path, env=environment, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")  # the file there would end it with "imported"


def test_a_system_that_starts_no_more_processes_is_an_error_of_one_line(runs, monkeypatch):
    def popen(*_, **__):
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(subprocess, "Popen", popen)
    with pytest.raises(StorageError, match=r"python\S*: cannot start: Resource temporarily unavailable\."):
        start(runs[0], [], {})


def test_runs_start_in_order_as_jobs_become_free(runs, capfd):
    assert train(runs, {0: f"import time; time.sleep(0.3); {FINISH}"}, 2) == ([0, 0, 0], 0)
    events = [(line.split()[0], line.split()[2]) for line in capfd.readouterr().err.splitlines()]
    assert events[:2] == [("[1/3]", "continues"), ("[2/3]", "continues")]
    assert events[2][1] == "finished"  # the third starts where one has left
    assert ("[3/3]", "continues") in events[3:]


def test_failures_do_not_stop_the_others_and_are_named(runs, capfd):
    deadly = "import os; os.kill(os.getpid(), 9)"
    refused = "import sys; print('error: no', file=sys.stderr); sys.exit(4)"
    codes, _ = train(runs, {1: deadly, 2: refused}, 3)
    assert codes == [0, 137, 4]
    shown = capfd.readouterr().err.splitlines()
    assert {"error: no", f"[2/3] {runs[1].name} failed with exit code 137 at step 0"} <= set(shown)


def test_an_error_in_starting_a_run_lets_the_others_save(runs):
    def start_one(run: SweepRun) -> Worker:
        if run is runs[0]:
            return process(run, RECORD)
        while not ready(runs[:1]):
            time.sleep(0.005)
        raise ConfigError("changed")

    with pytest.raises(ConfigError, match="changed"):
        train_runs(runs, start_one, 2, say_nothing, Signals("sweep s", "go on", say_nothing))
    assert (runs[0].path / "signals").read_text() == f"{int(signal.SIGTERM)} "


@pytest.mark.parametrize(("sent", "passed_on"), [(signal.SIGINT, signal.SIGTERM), (signal.SIGTERM, signal.SIGINT)])
def test_a_signal_is_passed_on_once_as_the_other_one(runs, sent, passed_on):
    asked = []

    def interrupt() -> None:
        if not asked and ready(runs[:2]):
            asked.append(os.kill(os.getpid(), sent))

    assert train(runs, {0: RECORD, 1: RECORD}, 2, interrupt) == ([128 + passed_on, 128 + passed_on, None], sent)
    assert [(run.path / "signals").read_text() for run in runs[:2]] == [f"{int(passed_on)} "] * 2


def test_a_wish_to_save_is_passed_on_and_nothing_stops(runs):
    asked = []

    def ask() -> None:
        if not asked and ready(runs[:1]):
            asked.append(os.kill(os.getpid(), signal.SIGUSR1))

    assert train(runs[:1], {0: SAVE_ONCE}, 1, ask) == ([0], 0)


def test_the_same_signal_twice_kills_every_worker(runs):
    ignore = "import signal, time\nsignal.signal(15, signal.SIG_IGN)\nopen('ready', 'w').close()\ntime.sleep(60)"

    def interrupt() -> None:
        if ready(runs[:2]):
            os.kill(os.getpid(), signal.SIGINT)

    begun = time.monotonic()
    with pytest.raises(Interrupted, match="stopped at once; the last checkpoint is kept"):
        train(runs, dict.fromkeys(range(3), ignore), 2, interrupt)
    assert time.monotonic() < begun + 30  # they would have slept for a minute


def test_runs_that_train_at_a_time_share_the_threads(monkeypatch):
    monkeypatch.setattr("gptlite.cli.sweep.available_threads", lambda: Choice(8, ""))
    assert [environment_for(n)["GPTLITE_THREADS"] for n in (1, 2, 3, 6, 16)] == ["8", "4", "2", "1", "1"]
