from __future__ import annotations

import pytest
import torch

from gptlite.compute.device import computes_in_bf16, resolve, settings
from gptlite.compute.threads import choose_threads
from gptlite.config.schema import RunSection


def test_auto_is_replaced_by_what_the_machine_has_and_every_choice_has_a_reason(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    chosen = resolve(RunSection(), 64)
    assert chosen.device.type == "cpu"
    assert (chosen.threads, chosen.reasons[-1]) == choose_threads()
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
    assert resolve(RunSection(device="cpu"), 64).precision == expected
    assert resolve(RunSection(device="cpu", precision="bf16"), 64).precision == "bf16"


@pytest.mark.parametrize(
    ("precision", "block_size", "expected"), [("bf16", 256, "batched"), ("bf16", 257, "fused"), ("fp32", 64, "fused")]
)
def test_attention_is_batched_for_short_contexts_in_bf16_on_a_cpu(precision, block_size, expected):
    assert resolve(RunSection(device="cpu", precision=precision), block_size).attention == expected
    assert resolve(RunSection(device="cpu", precision=precision, attention="plain"), block_size).attention == "plain"


@pytest.mark.parametrize(("capability", "expected"), [((7, 5), False), ((8, 0), True), ((9, 0), True)])
def test_gpus_multiply_bf16_from_ampere_on(monkeypatch, capability, expected):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    assert computes_in_bf16(torch.device("cuda", 0)) == expected


def test_threads_that_are_asked_for_are_taken_whatever_auto_would(monkeypatch):
    monkeypatch.setenv("GPTLITE_THREADS", "1")
    chosen = resolve(RunSection(device="cpu", threads=7), 64)
    assert chosen.threads == 7
    assert "threads 7: as asked" in chosen.reasons


def test_settings_are_applied_and_put_back():
    compute = resolve(RunSection(device="cpu", threads=1), 64)
    before = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    with settings(compute, deterministic=True):
        assert torch.get_num_threads() == 1
        assert torch.are_deterministic_algorithms_enabled()
    assert before == (torch.get_num_threads(), torch.are_deterministic_algorithms_enabled())


def test_autocast_multiplies_in_the_chosen_precision():
    a = torch.ones(2, 2)
    with resolve(RunSection(device="cpu", precision="bf16"), 64).autocast():
        assert (a @ a).dtype == torch.bfloat16
    with resolve(RunSection(device="cpu", precision="fp32"), 64).autocast():
        assert (a @ a).dtype == torch.float32
