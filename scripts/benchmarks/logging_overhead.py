"""`scripts/bench logging`: what the log costs of the time of updates, at the smallest config as it is shipped."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter
from typing import ParamSpec, TypeVar
from unittest import mock

import gptlite
from benchmarks.figures import Figure, Spread
from benchmarks.worker import Contender, Worker
from gptlite.compute.limits import ALONE

CONFIG = "tiny.yaml"
AT_MOST = 0.01

P = ParamSpec("P")
T = TypeVar("T")


def timed(work: Callable[P, T], seconds: list[float]) -> Callable[P, T]:
    """The same work; how long each call takes is added to `seconds`."""

    def measured(*args: P.args, **kwargs: P.kwargs) -> T:
        began_at = perf_counter()
        try:
            return work(*args, **kwargs)
        finally:
            seconds.append(perf_counter() - began_at)

    return measured


def training(sets: list[str]) -> Contender:
    """A turn is a training; its figure the share of its updates' time that went into their log lines: looking at the
    update, reading the meter, writing to files, TensorBoard and the terminal."""
    from gptlite.loggers.metrics import MetricLog
    from gptlite.training import step
    from gptlite.training.diagnostics import UpdateRatio
    from gptlite.training.throughput import Throughput

    def turn(times: int) -> float:
        updates: list[float] = []
        logging: list[float] = []
        with mock.patch("gptlite.training.loop.train_step", timed(step.train_step, updates)), ExitStack() as patches:
            for owner, name in (
                (UpdateRatio, "numbers"),
                (UpdateRatio, "ratio"),
                (Throughput, "read"),
                (MetricLog, "write"),
            ):
                patches.enter_context(mock.patch.object(owner, name, timed(getattr(owner, name), logging)))
            gptlite.train(CONFIG, sets, progress=False)
        return sum(logging) / sum(updates)

    return turn, {}


def measure(folder: Path, rounds: int) -> list[Figure]:
    """A process for each training. The first of each prepares files and is left out by the median."""
    sets = [f"run.dir={folder / 'runs'}", f"data.dir={folder / 'prepared'}", "run.device=cpu"]
    shares = []
    for _ in range(rounds):
        with Worker("logging_overhead.training", ALONE, sets=sets) as worker:
            shares.append(worker.turn())
    return [Figure(f"{CONFIG}: logging over updates", Spread.of(shares), "", at_most=AT_MOST)]
