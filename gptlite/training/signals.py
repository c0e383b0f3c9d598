"""Ctrl-C and SIGTERM: noted when they come, obeyed when what is being done is whole."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from gptlite.errors import Interrupted


class Signals:
    """What was received; the same signal again gives up at once. The other one after it says nothing new: who stops
    several processes may tell each of them in both ways.

    subject: `run small`. go_on: the command that goes on. tell: called inside the signal handler with a line for the
    user, what is done about the first signal.
    """

    def __init__(
        self, subject: str, go_on: str, tell: Callable[[str], None], answer: str = "stopping after this update"
    ) -> None:
        self.received = 0
        self._subject, self._go_on, self._tell, self._answer = subject, go_on, tell, answer

    def _note(self, signum: int, frame: FrameType | None) -> None:
        signal.signal(signum, self._give_up)
        if not self.received:
            self.received = signum
            again = "; press again to give up" if signum == signal.SIGINT else ""
            self._tell(f"{self._answer}{again}")

    def _give_up(self, signum: int, frame: FrameType | None) -> None:
        signal.signal(signum, signal.SIG_DFL)  # a third one needs nobody's help
        raise self.interrupted(signum, "told twice, stopped at once; the last checkpoint stands")

    def interrupted(self, signum: int, how: str) -> Interrupted:
        """The error that ends the work after a signal, saying how it ended and how to go on."""
        name = signal.Signals(signum).name
        return Interrupted(signum, f"{self._subject}: signal = {name}: {how}; go on with: {self._go_on}")

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Handlers for both, and afterwards those of before."""
        before = {signum: signal.signal(signum, self._note) for signum in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for signum, handler in before.items():
                signal.signal(signum, handler)
