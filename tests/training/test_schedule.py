import pytest

from gptlite.compute.choice import GIVEN, Choice
from gptlite.config.schema import RunConfig
from gptlite.config.training import TrainSection
from gptlite.training.schedule import choose_lr, lr_at


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


def test_constant_does_not_decay_before_the_warm_up_is_over():
    cfg = section(schedule="constant", decay_fraction=0.9, max_steps=20)  # of the last 18 updates 10 are left
    assert lr_at(10, cfg) == 1.0
    assert lr_at(15, cfg) == pytest.approx(0.5)


def test_a_run_that_is_all_warm_up_still_has_a_rate():
    assert lr_at(109, section(warmup_steps=110)) == pytest.approx(1.0)


@pytest.mark.parametrize("schedule", ["cosine", "linear", "constant"])
def test_a_warm_up_longer_than_the_run_is_cut_to_it(schedule):
    cfg = section(lr=0.3, max_steps=3, warmup_steps=50, schedule=schedule)
    assert [lr_at(step, cfg) for step in range(3)] == pytest.approx([0.1, 0.2, 0.3])


def test_under_max_minutes_the_decay_follows_the_share_of_time_that_is_gone_and_the_warm_up_the_updates():
    cfg = section(max_steps=None, max_minutes=3, schedule="linear")
    assert [lr_at(500, cfg, gone) for gone in (0.0, 0.25, 1.0)] == pytest.approx([1.0, 0.75, 0.0])
    assert lr_at(4, cfg, 0.5) == pytest.approx(0.5 * 0.5)
    held = section(max_steps=None, max_minutes=3, schedule="constant", decay_fraction=0.4)
    assert [lr_at(500, held, gone) for gone in (0.6, 0.8, 1.0)] == pytest.approx([1.0, 0.5, 0.0])


@pytest.mark.parametrize(
    ("optimizer", "n_embd", "expected"),
    [("adamw", 32, 0.002), ("adamw", 400, 0.001), ("adamw", 768, 0.00052), ("muon", 64, 0.04), ("muon", 400, 0.008)],
)
def test_the_learning_rate_that_auto_chooses_falls_with_the_width_of_wide_models(optimizer, n_embd, expected):
    cfg = RunConfig().with_values({"train.optimizer": optimizer, "model.n_embd": n_embd})
    assert choose_lr(cfg).value == expected


def test_a_learning_rate_that_is_asked_for_is_taken():
    assert choose_lr(RunConfig().with_values({"train.lr": 0.7})) == Choice(0.7, GIVEN)
