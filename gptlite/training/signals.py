"""Ctrl-C and SIGTERM: noted when they come, acted on when the current update is complete."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from gptlite.errors import Interrupted


class Signals:
    """Which signal was received first. The same signal a second time stops at once; the other one is ignored, because
    whoever stops several processes may send both to each.

    where: `run small`, for messages. handle: what to resume, for Interrupted. tell: shows a line; called inside the
    signal handler. answer: that line.
    """

    def __init__(
        self,
        where: str,
        handle: str | None,
        tell: Callable[[str], None],
        answer: str = "stopping after this update",
    ) -> None:
        self.received = 0
        self._where, self._handle, self._tell, self._answer = where, handle, tell, answer

    def _on_first(self, signum: int, frame: FrameType | None) -> None:
        signal.signal(signum, self._on_second)
        if not self.received:
            self.received = signum
            again = " (press Ctrl-C again to stop at once)" if signum == signal.SIGINT else ""
            self._tell(f"{self._answer}{again}")

    def _on_second(self, signum: int, frame: FrameType | None) -> None:
        signal.signal(signum, signal.SIG_DFL)  # a third one ends the process
        raise self.interrupted(signum, "stopped at once; the last checkpoint is kept")

    def interrupted(self, signum: int, what_happened: str) -> Interrupted:
        """The error that ends the work after a signal."""
        name = signal.Signals(signum).name
        return Interrupted(signum, f"{what_happened} ({name})", self._where, handle=self._handle)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Install the handlers for both signals, and restore the previous ones afterwards."""
        handlers = {signum: signal.signal(signum, self._on_first) for signum in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for signum, handler in handlers.items():
                signal.signal(signum, handler)
