"""Contenders taking turns, so that what slows the machine down for a while slows all of them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from typing import Any

from benchmarks.worker import Worker

TURN_SECONDS = 1.0  # of a turn, unless one unit takes longer


@dataclass
class Interleaved(AbstractContextManager["Interleaved"]):
    """Workers by the name of their contender, and the seconds per unit of each of their turns."""

    workers: Mapping[str, Worker]
    seconds: dict[str, list[float]] = field(default_factory=dict)

    @classmethod
    def of(cls, contenders: Mapping[str, tuple[str, Mapping[str, Any]]]) -> Interleaved:
        """Start the workers one after another; each is a function that builds it, and its arguments."""
        with ExitStack() as started:
            workers = {
                name: started.enter_context(Worker(function, **arguments))
                for name, (function, arguments) in contenders.items()
            }
            started.pop_all()
        return cls(workers)

    def play(self, rounds: int) -> None:
        """One unit to warm up, one to see how many make a turn, then the rounds: forth, back, forth, ..."""
        for worker in self.workers.values():
            worker.turn()
        times = {name: max(1, round(TURN_SECONDS / worker.turn())) for name, worker in self.workers.items()}
        self.seconds = {name: [] for name in self.workers}
        for i in range(rounds):
            for name in self.workers if i % 2 == 0 else reversed(list(self.workers)):
                self.seconds[name].append(self.workers[name].turn(times[name]))

    def __exit__(self, *_: object) -> None:
        with ExitStack() as started:
            for worker in self.workers.values():
                started.push(worker)
