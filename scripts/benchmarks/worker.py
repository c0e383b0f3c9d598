"""A contender in a process of its own: settings of threads and allocator are process-wide.

Its command line names what to build. One JSON line says that it is ready, with facts about it; then each number read
from standard input asks for a turn of so many units of work and is answered by one JSON line: seconds per unit, and
the most memory that the process has held.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

Turn = Callable[[int], float]  # so many units of work -> seconds for one
Contender = tuple[Turn, dict[str, Any]]


def timed(unit: Callable[[], object], finish: Callable[[], object] = lambda: None) -> Turn:
    """Turns of a unit of work. Short units begin with one that does not count: caches are someone else's by then.

    finish: waits for what a GPU still has to do.
    """

    def turn(times: int) -> float:
        if times > 1:
            unit()
        finish()
        began_at = time.perf_counter()
        for _ in range(times):
            unit()
        finish()
        return (time.perf_counter() - began_at) / times

    return turn


class WorkerFailed(Exception):
    """A worker ended instead of answering; with the end of what it said."""


class Worker(AbstractContextManager["Worker"]):
    """The asking side. Started when made, ready when that returns."""

    def __init__(self, function: str, environment: Mapping[str, str] | None = None, **arguments: Any) -> None:
        """function: one of this package that builds a contender, "trainers.gptlite" say. environment: variables that
        it has beside ours."""
        path = os.pathsep.join(filter(None, [str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH")]))
        self._function, self._said = function, tempfile.TemporaryFile("w+")  # noqa: SIM115  closed with the worker
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, json.dumps([function, arguments])],
            env={**os.environ, "PYTHONPATH": path, **(environment or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
        )
        self.peak_memory = 0
        self.facts: dict[str, Any] = self._answer()

    def turn(self, times: int = 1) -> float:
        """Seconds for one unit, in a turn of so many."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # gone: no answer will say so, with its last words
            self._process.stdin.write(f"{times}\n")
            self._process.stdin.flush()
        answer = self._answer()
        self.peak_memory = answer["peak_memory"]
        seconds: float = answer["seconds"]
        return seconds

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            self._said.seek(0)
            said = self._said.read()[-4000:]
            self.__exit__()
            raise WorkerFailed(f"{self._function}: exit code = {code}; it said:\n{said}")
        return json.loads(line)

    def __exit__(self, *_: object) -> None:
        self._process.communicate()  # the end of its input is its end
        self._said.close()


def peak_memory() -> int:
    """The most bytes this process has had resident at a time, all modules included; on a GPU those of its tensors.

    Linux begins it with what the parent had at the fork: no matter, since the parent loads no torch.
    """
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return int(torch.cuda.max_memory_allocated())
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def serve() -> None:
    """The working side."""
    function, arguments = json.loads(sys.argv[1])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # contenders print what they like
    module, _, name = function.rpartition(".")
    turn, facts = getattr(importlib.import_module(f"{__package__}.{module}"), name)(**arguments)
    print(json.dumps(facts), file=answers, flush=True)
    for line in sys.stdin:
        answer = {"seconds": turn(int(line)), "peak_memory": peak_memory()}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    serve()
