"""Signals: noted when they come, acted on when the current update is complete.

SIGINT, SIGTERM, SIGHUP    save and exit with 128 + the signal's number
SIGUSR1                    save and go on
SIGTSTP (Ctrl-Z)           stop until SIGCONT; the time in between does not count as training
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from types import FrameType

from gptlite.errors import Interrupted
from gptlite.formatting import Say

STOPPING = (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM))  # Windows has none
SAVE = 1  # a request below every signal that stops, so that the largest request of several processes is to stop
STOP = 100  # plus the number of the signal


class Signals:
    """Which signal that stops was received first, and whether a save was asked for.

    The same signal a second time stops at once; another one is ignored, because whoever stops several processes may
    send both to each. A signal that the parent process ignores (`nohup`, `&` in a script) stays ignored.

    where: `run small`, for messages. handle: what to resume, for Interrupted. tell: shows a line; called inside the
    signal handler.
    """

    def __init__(self, where: str, handle: str | None, tell: Say) -> None:
        self.received, self.save_wanted, self.paused = 0, False, 0.0  # seconds
        self._where, self._handle, self._tell = where, handle, tell

    def now(self) -> float:
        """Return the seconds since some moment, without those in which the process was stopped by SIGTSTP."""
        return perf_counter() - self.paused

    def take_request(self) -> int:
        """Return 0, SAVE, or STOP + the number of the signal. A save is asked for once."""
        if self.received:
            return STOP + self.received
        wanted, self.save_wanted = self.save_wanted, False
        return SAVE if wanted else 0

    def _on_first(self, signum: int, frame: FrameType | None) -> None:
        signal.signal(signum, self._on_second)
        if not self.received:
            self.received = signum
            again = " (press Ctrl-C again to stop at once)" if signum == signal.SIGINT else ""
            self._tell(f"stopping after this update{again}")

    def _on_second(self, signum: int, frame: FrameType | None) -> None:
        signal.signal(signum, signal.SIG_DFL)  # a third one ends the process
        raise self.interrupted(signum, "stopped at once; the last checkpoint is kept")

    def _on_save(self, signum: int, frame: FrameType | None) -> None:
        self.save_wanted = True

    def _on_pause(self, signum: int, frame: FrameType | None) -> None:
        began_at = perf_counter()
        os.kill(os.getpid(), signal.SIGSTOP)  # returns after SIGCONT
        seconds = perf_counter() - began_at
        self.paused += seconds
        self._tell(f"training was stopped for {seconds:.0f} s, which do not count")

    def interrupted(self, signum: int, what_happened: str) -> Interrupted:
        """Return the error that ends the work after a signal."""
        name = signal.Signals(signum).name
        return Interrupted(signum, f"{what_happened} ({name})", self._where, handle=self._handle)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Install the handlers, and restore the previous ones afterwards."""
        others = {signal.SIGUSR1: self._on_save, signal.SIGTSTP: self._on_pause}
        handlers = {**dict.fromkeys(STOPPING, self._on_first), **others}
        watched = {
            signum: handler for signum, handler in handlers.items() if signal.getsignal(signum) != signal.SIG_IGN
        }
        previous = {signum: signal.signal(signum, handler) for signum, handler in watched.items()}
        try:
            yield
        finally:
            for signum, handler in previous.items():
                signal.signal(signum, handler)
