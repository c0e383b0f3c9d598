"""Where training stands after an update, a log line, an evaluation."""

from __future__ import annotations

from gptlite.inference.score import Score
from gptlite.training.state import TrainState


def test_an_evaluation_as_good_as_the_best_is_no_new_best():
    score = Score(nats=30.0, tokens=10, bytes=10, characters=10)
    first = TrainState(step=4).after_eval(score)
    again = first.after_update(3.0, 128, 1.0).after_eval(score)
    assert (first.best_step, first.evaluations_since_best, first.is_new_best) == (4, 0, True)
    assert (again.best_step, again.evaluations_since_best, again.is_new_best) == (4, 1, False)


def test_the_state_of_an_older_version_is_read_without_the_seconds_that_it_counted_otherwise():
    values = {"step": 7, "tokens": 70, "elapsed": 3.0, "ending": 6.0}
    assert TrainState.from_json(values) == TrainState(step=7, tokens=70, elapsed=3.0)


def test_an_evaluation_after_the_first_update_which_is_not_timed_is_not_measured_in_updates():
    state = TrainState(evaluation_updates=3.0).after_update(1.0, 10, now=5.0)
    assert state.after_pause(evaluation=2.0, save=0.5).evaluation_updates == 3.0
