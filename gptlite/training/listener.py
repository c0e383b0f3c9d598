"""The interface for progress messages. The library itself never prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from gptlite.loggers.metrics import Sink


class Listener(Protocol):
    """The terminal, a notebook, or nobody."""

    def say(self, line: str) -> None:
        """Show one line."""

    def say_at_once(self, line: str) -> None:
        """Show one line from a signal handler, which may have interrupted another one."""

    def begin(self, total: float, start: float, *, in_seconds: bool) -> Sequence[Sink]:
        """Training is about to go from `start` to `total`, in updates or in seconds. Returns sinks for its metrics."""

    def progress(self, step: int, loss: float) -> None:
        """An update was made."""


class SilentListener:
    """Shows nothing."""

    def say(self, line: str) -> None: ...

    def say_at_once(self, line: str) -> None: ...

    def begin(self, total: float, start: float, *, in_seconds: bool) -> Sequence[Sink]:
        return ()

    def progress(self, step: int, loss: float) -> None: ...
