import pytest

from gptlite.config.schema import TrainSection
from gptlite.training.schedule import lr_at


def section(**values) -> TrainSection:
    return TrainSection(**{"lr": 1.0, "max_steps": 110, "warmup_steps": 10, **values})


def test_warm_up_is_linear_and_starts_above_zero():
    assert [lr_at(s, section()) for s in (0, 4, 9)] == pytest.approx([0.1, 0.5, 1.0])


@pytest.mark.parametrize(
    ("schedule", "at_half", "at_three_quarters"),
    [("cosine", 0.5, (1 - 0.5**0.5) / 2), ("linear", 0.5, 0.25), ("constant", 1.0, 1.0)],
)
def test_the_shape_of_each_schedule(schedule, at_half, at_three_quarters):
    cfg = section(schedule=schedule)
    assert lr_at(10, cfg) == 1.0
    assert lr_at(60, cfg) == pytest.approx(at_half)
    assert lr_at(85, cfg) == pytest.approx(at_three_quarters)


def test_every_schedule_ends_at_the_minimum():
    for schedule in ("cosine", "linear", "constant"):
        assert lr_at(110, section(schedule=schedule, min_lr_ratio=0.1)) == pytest.approx(0.1)


def test_constant_decays_over_its_last_part():
    cfg = section(schedule="constant", decay_fraction=0.5)  # the last 55 of 110 updates
    assert lr_at(55, cfg) == 1.0
    assert lr_at(82, cfg) == pytest.approx(1 - 27 / 55)


def test_a_run_that_is_all_warm_up_still_has_a_rate():
    assert lr_at(109, section(warmup_steps=110)) == pytest.approx(1.0)
