import pytest

from gptlite.compute.choice import GIVEN, Choice
from gptlite.config.schema import RunConfig
from gptlite.config.training import TrainSection
from gptlite.training.schedule import choose_adamw_lr, choose_lr, lr_at

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


@pytest.mark.parametrize(
    ("optimizer", "n_embd", "expected"),
    [("adamw", 32, 0.002), ("adamw", 400, 0.001), ("adamw", 768, 0.00052), ("muon", 64, 0.02), ("muon", 400, 0.004)],
)
def test_the_learning_rate_that_auto_chooses_falls_with_the_width_of_wide_models(optimizer, n_embd, expected):
    cfg = RunConfig().with_values({"train.optimizer": optimizer, "model.n_embd": n_embd, "model.init": "zero"})
    assert choose_lr(cfg).value == expected


@pytest.mark.parametrize(("n_embd", "expected"), [(16, 0.02), (132, 0.01), (2116, 0.0025)])
def test_with_heads_that_look_back_the_rate_of_muon_falls_more_slowly_with_the_width(n_embd, expected):
    cfg = RunConfig().with_values({"train.optimizer": "muon", "model.n_embd": n_embd})
    assert choose_lr(cfg).value == pytest.approx(expected, rel=0.01)
    without = [{"model.init": "gpt2"}, {"model.position": "sinusoidal"}]
    assert [choose_lr(cfg.with_values(each)).value for each in without] == [float(f"{min(0.02, 1.6 / n_embd):.2g}")] * 2
    adamw = cfg.with_values({"train.optimizer": "adamw"})
    assert choose_lr(adamw).value == choose_lr(adamw.with_values({"model.init": "zero"})).value


def test_next_to_muon_adamw_takes_more_for_larger_vocabularies():
    cfg = RunConfig().with_values({"train.optimizer": "muon"})
    rates = [choose_adamw_lr(cfg, vocab_size).value for vocab_size in (64, 512, 4096)]
    assert rates[1] == pytest.approx(2 * rates[0], rel=0.05)
    assert rates[2] == pytest.approx(4 * rates[0], rel=0.05)
    assert choose_adamw_lr(cfg.with_values({"train.optimizer": "adamw"}), 64).value is None
    assert choose_adamw_lr(cfg.with_values({"train.adamw_lr": 0.3}), 64) == Choice(0.3, GIVEN)


def test_a_learning_rate_that_is_asked_for_is_taken():
    assert choose_lr(RunConfig().with_values({"train.lr": 0.7})) == Choice(0.7, GIVEN)
