"""Figures of the machine, from a clock and products that are made up."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch

from gptlite.compute.device import Compute
from gptlite.compute.distributed import Dist
from gptlite.config.schema import ModelSection, RunSection
from gptlite.errors import ConfigError
from gptlite.model.gpt import GPT
from gptlite.training import throughput
from gptlite.training.throughput import Throughput, matmul_flops_per_second

CPU = Compute(torch.device("cpu"), "fp32", "fused", 1)
MODEL = GPT(ModelSection(n_layer=2, n_head=2, n_embd=8, block_size=16), 11)
# 6 operations a weight and token: 12 C^2 a layer and the head; 12 T C a layer for the products of attention.
FLOPS_PER_TOKEN = 6 * (2 * 12 * 64 + 8 * 11) + 2 * 12 * 16 * 8


@pytest.fixture
def _machine(monkeypatch):
    """A million operations a second."""
    monkeypatch.setattr(throughput, "matmul_flops_per_second", lambda compute: 1e6)


@pytest.mark.usefixtures("_machine")
def test_the_share_is_the_models_arithmetic_over_what_all_processes_could_do():
    read = Throughput(MODEL.cfg, MODEL.vocab_size, CPU, Dist(rank=0, world_size=2)).read(tokens=300, seconds=3.0)
    assert read["tokens_per_second"] == 100.0
    assert read["mfu"] == pytest.approx(100 * FLOPS_PER_TOKEN / 2e6)
    assert read["peak_mib"] > 50  # torch alone takes more


def test_a_product_of_square_matrices_is_two_operations_for_each_row_column_and_term(monkeypatch):
    seconds = iter(range(100))
    monkeypatch.setattr(throughput, "perf_counter", lambda: next(seconds))
    assert matmul_flops_per_second(CPU) == 2 * throughput.CPU_SIDE**3


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("GPTLITE_SPEED", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.mark.parametrize(
    ("gflops", "expected"),
    [(0.1, 1), (1.4, 1), (1.5, 2), (45.2, 32), (45.3, 64), (90.5, 64), (90.6, 128), (3e5, 262_144)],
)
def test_classes_are_powers_of_two_whose_borders_are_their_geometric_means(gflops, expected):
    assert throughput.speed_class(gflops) == expected


def test_the_speed_is_the_operations_of_a_pass_over_the_fewest_seconds(monkeypatch):
    # 6 operations per weight and token: 4 blocks of 12 * 128^2, a head of 256 * 128, attention 2 * 4 * 64 * 128.
    operations = 6 * 16 * 64 * (4 * 12 * 128**2 + 256 * 128 + 2 * 4 * 64 * 128)
    seconds = itertools.chain([9.0] * throughput.WARM_UP, [0.7] * 3, [0.5], itertools.repeat(7.0))
    now = itertools.accumulate(itertools.chain.from_iterable((0.0, each) for each in seconds))
    monkeypatch.setattr(throughput, "perf_counter", lambda: next(now))
    assert throughput.measure_speed(RunSection(device="cpu", threads=1)) == pytest.approx(operations / 0.5 / 1e9)


def test_a_timing_is_rounded_and_the_environment_replaces_it(monkeypatch):
    monkeypatch.setattr(throughput, "measure_speed", lambda run: 70.0)
    found = throughput.find_speed(RunSection())
    assert (found.value, found.reason) == (64, "measured 70 GFLOP/s")
    monkeypatch.setenv("GPTLITE_SPEED", "48")
    assert throughput.find_speed(RunSection()).value == 48


def test_a_busy_machine_has_the_speed_that_it_had_before(monkeypatch, tmp_path):
    speeds = iter((70.0, 30.0, 200.0, 30.0, 31.0))
    monkeypatch.setattr(throughput, "measure_speed", lambda run: next(speeds))
    found = [throughput.find_speed(RunSection()) for _ in range(3)]
    assert [(speed.value, speed.reason) for speed in found] == [
        (64, "measured 70 GFLOP/s"),
        (64, "measured 30 GFLOP/s, 70 before"),
        (256, "measured 200 GFLOP/s"),
    ]
    assert throughput.find_speed(RunSection(threads=1)).value == 32  # which is another matter
    (kept,) = tmp_path.rglob("speed.json")
    kept.write_text("{damaged")
    assert throughput.find_speed(RunSection()).reason == "measured 31 GFLOP/s"


@pytest.mark.parametrize("text", ["fast", "0", "-3", "1e3", "1.5", "٣", "99999999999"])
def test_an_environment_that_is_no_speed_is_refused(monkeypatch, text):
    monkeypatch.setenv("GPTLITE_SPEED", text)
    with pytest.raises(ConfigError, match=r"^GPTLITE_SPEED: .*Set it to GFLOP/s as a whole number"):
        throughput.find_speed(RunSection())
