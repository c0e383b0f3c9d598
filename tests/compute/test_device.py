from __future__ import annotations

import pytest
import torch

from gptlite.compute import device
from gptlite.compute.device import computes_in_bf16, resolve, settings, usable_cores
from gptlite.config.schema import RunSection


def test_auto_is_replaced_by_what_the_machine_has_and_every_choice_has_a_reason(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    chosen = resolve(RunSection())
    assert chosen.device.type == "cpu"
    assert chosen.threads == usable_cores() >= 1
    assert "auto" not in chosen.values().values()
    assert len(chosen.reasons) == len(chosen.values())


@pytest.mark.parametrize(
    ("capability", "bf16", "amx", "expected"),
    [
        ("AVX2", False, False, "fp32"),
        ("AVX512", False, False, "fp32"),
        ("AVX512", True, False, "bf16"),
        ("AVX512", False, True, "bf16"),
        ("DEFAULT", False, False, "fp32"),
    ],
)
def test_precision_is_bf16_only_where_the_processor_multiplies_it(monkeypatch, capability, bf16, amx, expected):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: bf16)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
    assert resolve(RunSection(device="cpu")).precision == expected
    assert resolve(RunSection(device="cpu", precision="bf16")).precision == "bf16"


@pytest.mark.parametrize(("capability", "expected"), [((7, 5), False), ((8, 0), True), ((9, 0), True)])
def test_gpus_multiply_bf16_from_ampere_on(monkeypatch, capability, expected):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    assert computes_in_bf16(torch.device("cuda", 0)) == expected


def test_only_affine_cores_count(monkeypatch):
    monkeypatch.setattr(device.os, "sched_getaffinity", lambda _: {2, 5, 7}, raising=False)
    assert usable_cores() == 3


def test_settings_are_applied_and_put_back():
    compute = resolve(RunSection(device="cpu", threads=1))
    before = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    with settings(compute, deterministic=True):
        assert torch.get_num_threads() == 1
        assert torch.are_deterministic_algorithms_enabled()
    assert before == (torch.get_num_threads(), torch.are_deterministic_algorithms_enabled())


def test_autocast_multiplies_in_the_chosen_precision():
    a = torch.ones(2, 2)
    with resolve(RunSection(device="cpu", precision="bf16")).autocast():
        assert (a @ a).dtype == torch.bfloat16
    with resolve(RunSection(device="cpu", precision="fp32")).autocast():
        assert (a @ a).dtype == torch.float32
