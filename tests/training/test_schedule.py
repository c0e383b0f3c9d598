import pytest

from gptlite.config.training import TrainSection
from gptlite.training.step import lr_at

SCHEDULES = ("cosine", "linear", "constant")


def section(**values) -> TrainSection:
    return TrainSection(**{"lr": 1.0, "max_steps": 110, "warmup_steps": 10, **values})


@pytest.mark.parametrize(
    ("values", "rates"),
    [
        ({}, {0: 0.1, 4: 0.5, 9: 1.0}),  # the warm-up is linear and starts above zero
        ({"schedule": "cosine"}, {10: 1.0, 60: 0.5, 85: (1 - 0.5**0.5) / 2}),
        ({"schedule": "linear"}, {10: 1.0, 60: 0.5, 85: 0.25}),
        ({"schedule": "constant"}, {10: 1.0, 60: 1.0, 85: 1.0}),
        # It decays over its last part, 55 of 110 updates, but not before the warm-up is over: of 18, 10 are left.
        ({"schedule": "constant", "decay_fraction": 0.5}, {55: 1.0, 82: 1 - 27 / 55}),
        ({"schedule": "constant", "decay_fraction": 0.9, "max_steps": 20}, {10: 1.0, 15: 0.5}),
        *(({"schedule": each, "min_lr_ratio": 0.1}, {110: 0.1}) for each in SCHEDULES),
        # A warm-up that is as long as the run, and one that is longer and is cut to it.
        ({"warmup_steps": 110}, {109: 1.0}),
        *(
            ({"schedule": each, "lr": 0.3, "max_steps": 3, "warmup_steps": 50}, {0: 0.1, 1: 0.2, 2: 0.3})
            for each in SCHEDULES
        ),
    ],
    ids=str,
)
def test_the_rate_of_each_update_follows_warm_up_and_schedule(values, rates):
    cfg = section(**values)
    assert {step: lr_at(step, cfg) for step in rates} == pytest.approx(rates)


def test_under_max_minutes_the_decay_follows_the_share_of_time_that_is_gone_and_the_warm_up_the_updates():
    cfg = section(max_steps=None, max_minutes=3, schedule="linear")
    assert [lr_at(500, cfg, gone) for gone in (0.0, 0.25, 1.0)] == pytest.approx([1.0, 0.75, 0.0])
    assert lr_at(4, cfg, 0.5) == pytest.approx(0.5 * 0.5)
    held = section(max_steps=None, max_minutes=3, schedule="constant", decay_fraction=0.4)
    assert [lr_at(500, held, gone) for gone in (0.6, 0.8, 1.0)] == pytest.approx([1.0, 0.5, 0.0])
