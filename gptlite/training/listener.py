"""The interface for progress messages. The library itself never prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from gptlite.loggers.metrics import Sink


class Listener(Protocol):
    """The terminal, a notebook, or nobody."""

    def say(self, line: str) -> None:
        """Show one line."""
        return

    def say_at_once(self, line: str) -> None:
        """Show one line from a signal handler, which may have interrupted another one."""
        return

    def begin(self, total: float, start: float, *, in_seconds: bool) -> Sequence[Sink]:
        """Training is about to go from `start` to `total`, in updates or in seconds. Returns sinks for its metrics."""
        return ()

    def progress(self, step: int, loss: float) -> None:
        """Take note that an update was made."""
        return


class SilentListener(Listener):
    """Shows nothing."""
