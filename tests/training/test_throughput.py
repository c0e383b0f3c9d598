"""Figures of the machine, from a clock and products that are made up."""

from __future__ import annotations

import pytest
import torch

from gptlite.compute.device import Compute
from gptlite.compute.distributed import Dist
from gptlite.config.schema import ModelSection
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
