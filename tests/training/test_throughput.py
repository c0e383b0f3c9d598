"""Figures of the machine, from a clock and products that are made up."""

from __future__ import annotations

import pytest
import torch

from gptlite.compute import matmul_flops
from gptlite.compute.device import Compute
from gptlite.compute.distributed import Dist
from gptlite.compute.matmul_flops import matmul_flops_per_second
from gptlite.config.schema import ModelSection
from gptlite.model.gpt import GPT
from gptlite.training import throughput
from gptlite.training.throughput import Throughput

CPU = Compute(torch.device("cpu"), "fp32", "fused", 1)
MODEL = GPT(ModelSection(n_layer=2, n_head=2, n_embd=8, block_size=16), 11)
# 6 operations a weight and token: 12 C^2 a layer and the head; 12 T C a layer for the products of attention.
FLOPS_PER_TOKEN = 6 * (2 * 12 * 64 + 8 * 11) + 2 * 12 * 16 * 8


@pytest.fixture
def machine(monkeypatch):
    """[seconds on the clock, operations a second]"""
    now = [0.0, 1e6]
    monkeypatch.setattr(throughput, "perf_counter", lambda: now[0])
    monkeypatch.setattr(throughput, "matmul_flops_per_second", lambda compute: now[1])
    return now


def test_the_share_is_the_models_arithmetic_over_what_all_processes_could_do(machine):
    read = Throughput(MODEL.cfg, MODEL.vocab_size, CPU, Dist(rank=0, world_size=2)).read(tokens=300, seconds=3.0)
    assert read["tokens_per_second"] == 100.0
    assert read["mfu"] == pytest.approx(100 * FLOPS_PER_TOKEN / 2e6)
    assert read["peak_mib"] > 50  # torch alone takes more


def test_the_fastest_products_seen_so_far_count(machine):
    gauge = Throughput(MODEL.cfg, MODEL.vocab_size, CPU, Dist())
    shares = []
    for now, flops in ((20.0, 4e6), (31.0, 4e6), (62.0, 5e5)):
        machine[:] = [now, flops]
        shares.append(gauge.read(300, 3.0)["mfu"] / FLOPS_PER_TOKEN * 1e6)
    assert shares == pytest.approx([100.0, 25.0, 25.0])


def test_a_product_of_square_matrices_is_two_operations_for_each_row_column_and_term(monkeypatch):
    seconds = iter(range(100))
    monkeypatch.setattr(matmul_flops, "perf_counter", lambda: next(seconds))
    assert matmul_flops_per_second(CPU) == 2 * matmul_flops.CPU_SIDE**3
