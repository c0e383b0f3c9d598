"""The speed of the machine, for `--minutes`: a coarse class of what a timing says."""

from __future__ import annotations

import itertools

import pytest

from gptlite.config.schema import RunSection
from gptlite.errors import ConfigError
from gptlite.training import speed


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GPTLITE_SPEED", raising=False)


@pytest.mark.parametrize(
    ("gflops", "expected"),
    [(0.1, 1), (1.4, 1), (1.5, 2), (45.2, 32), (45.3, 64), (90.5, 64), (90.6, 128), (3e5, 262_144)],
)
def test_classes_are_powers_of_two_whose_borders_are_their_geometric_means(gflops, expected):
    assert speed.speed_class(gflops) == expected


def test_the_speed_is_the_operations_of_a_pass_over_its_median_seconds(monkeypatch):
    # 6 operations per weight and token: 4 blocks of 12 * 128^2, a head of 256 * 128, attention 2 * 4 * 64 * 128.
    operations = 6 * 16 * 64 * (4 * 12 * 128**2 + 256 * 128 + 2 * 4 * 64 * 128)
    seconds = itertools.chain([9.0] * speed.WARM_UP, [0.5] * 5, [0.1] * 2, itertools.repeat(7.0))
    now = itertools.accumulate(itertools.chain.from_iterable((0.0, each) for each in seconds))
    monkeypatch.setattr(speed, "perf_counter", lambda: next(now))
    assert speed.measure_speed(RunSection(device="cpu", threads=1)) == pytest.approx(operations / 0.5 / 1e9)


def test_a_timing_is_rounded_and_the_environment_replaces_it(monkeypatch):
    monkeypatch.setattr(speed, "measure_speed", lambda run: 70.0)
    found = speed.find_speed(RunSection())
    assert (found.value, found.reason) == (64, "measured 70 GFLOP/s")
    monkeypatch.setenv("GPTLITE_SPEED", "48")
    assert speed.find_speed(RunSection()).value == 48


@pytest.mark.parametrize("text", ["fast", "0", "-3", "1e3", "1.5", "٣", "99999999999"])
def test_an_environment_that_is_no_speed_is_refused(monkeypatch, text):
    monkeypatch.setenv("GPTLITE_SPEED", text)
    with pytest.raises(ConfigError, match=r"^GPTLITE_SPEED: .*Set it to GFLOP/s as a whole number"):
        speed.find_speed(RunSection())
