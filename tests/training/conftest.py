from __future__ import annotations

import pytest

from gptlite.training import loop, session, timing


class Hands:
    """A clock that stands still unless something takes time."""

    def __init__(self) -> None:
        self.seconds, self.update, self.look, self.busy_from = 0.0, 2.0, 4.0, float("inf")

    def take(self, seconds: float) -> None:
        """Work on an idle machine; once another program takes half of it, the work takes twice as long."""
        self.seconds += seconds if self.seconds < self.busy_from else 2 * seconds

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def hands(monkeypatch: pytest.MonkeyPatch) -> Hands:
    """Every update takes 2 seconds, every evaluation 4, as was expected."""
    hands = Hands()
    real_step, real_look = loop.train_step, loop.evaluate_and_log

    def step(*args):
        hands.take(hands.update)
        return real_step(*args)

    def look(*args):
        hands.take(hands.look)
        return real_look(*args)

    monkeypatch.setattr(loop, "perf_counter", hands)
    monkeypatch.setattr(timing, "perf_counter", hands)
    monkeypatch.setattr(loop, "train_step", step)
    monkeypatch.setattr(loop, "evaluate_and_log", look)
    monkeypatch.setattr(session, "expected_evaluation_updates", lambda *_: hands.look / hands.update)
    return hands
