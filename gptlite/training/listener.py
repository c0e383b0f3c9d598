"""What a training shows while it runs; the library itself never prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from gptlite.loggers.metrics import Sink


class Listener(Protocol):
    """Someone who is told how it goes."""

    def say(self, line: str) -> None:
        """One line."""

    def say_at_once(self, line: str) -> None:
        """One line from a signal handler, which may have come in the middle of another one."""

    def begin(self, total: float, start: float, *, in_seconds: bool) -> Sequence[Sink]:
        """Training is about to go from `start` to `total`, in updates or in seconds: sinks that want its numbers."""

    def progress(self, step: int, loss: float) -> None:
        """An update was made."""


class SilentListener:
    """Nobody."""

    def say(self, line: str) -> None:
        """See Terminal."""

    def say_at_once(self, line: str) -> None:
        """See Terminal."""

    def begin(self, total: float, start: float, *, in_seconds: bool) -> Sequence[Sink]:
        """See Terminal."""
        return ()

    def progress(self, step: int, loss: float) -> None:
        """See Terminal."""
