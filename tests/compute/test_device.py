from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from gptlite.compute import device
from gptlite.compute.choice import GIVEN, Choice
from gptlite.compute.device import Hardware, choose_compute, computes_in_bf16, resolve_compute, settings
from gptlite.config.schema import RunSection
from gptlite.errors import ConfigError


def hardware(*devices: str, bf16: tuple[str, ...] = (), threads: int = 8) -> Hardware:
    return Hardware(devices, frozenset(bf16), lambda: Choice(threads, "the cores this process may use"))


@pytest.mark.parametrize(
    ("machine", "block_size", "expected"),
    [
        (hardware("cpu"), 64, ("cpu", "fp32", "fused", 8)),
        (hardware("cpu", bf16=("cpu",)), 512, ("cpu", "bf16", "batched", 8)),
        (hardware("cpu", bf16=("cpu",)), 513, ("cpu", "bf16", "fused", 8)),
        (hardware("cuda", "cpu", bf16=("cuda",)), 64, ("cuda", "bf16", "fused", 8)),
        (hardware("cuda", "cpu", bf16=("cpu",)), 64, ("cuda", "fp32", "fused", 8)),
        (hardware("mps", "cpu"), 64, ("mps", "fp32", "fused", 8)),
    ],
)
def test_auto_follows_from_the_hardware_and_the_context_alone(machine, block_size, expected):
    chosen = choose_compute(RunSection(), block_size, machine)
    assert tuple(choice.value for choice in chosen.values()) == expected
    assert list(chosen) == ["run.device", "run.precision", "run.attention", "run.threads"]
    assert all(choice.reason and choice.reason != GIVEN for choice in chosen.values())


def test_what_is_given_wins_and_a_missing_device_is_refused():
    run = RunSection(device="cpu", precision="bf16", attention="plain", threads=3)
    chosen = choose_compute(run, 64, hardware("cuda", "cpu"))
    assert {choice.value for choice in chosen.values()} == {"cpu", "bf16", "plain", 3}
    assert {choice.reason for choice in chosen.values()} == {GIVEN}
    with pytest.raises(ConfigError, match=r"run\.device is cuda, and torch finds no such device here\."):
        choose_compute(RunSection(device="cuda"), 64, hardware("mps", "cpu"))


def test_the_devices_are_those_that_torch_finds(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert Hardware.detect().devices == ("mps", "cpu")


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
    assert resolve_compute(RunSection(device="cpu"), 64).precision == expected
    assert resolve_compute(RunSection(device="cpu", precision="bf16"), 64).precision == "bf16"


@pytest.mark.parametrize(("capability", "expected"), [((7, 5), False), ((8, 0), True), ((9, 0), True)])
def test_gpus_multiply_bf16_from_ampere_on(monkeypatch, capability, expected):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    assert computes_in_bf16(torch.device("cuda", 0)) == expected


def test_settings_are_applied_and_put_back():
    compute = resolve_compute(RunSection(device="cpu", threads=1), 64)
    before = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    with settings(compute, deterministic=True):
        assert torch.get_num_threads() == 1
        assert torch.are_deterministic_algorithms_enabled()
    assert before == (torch.get_num_threads(), torch.are_deterministic_algorithms_enabled())


@pytest.mark.parametrize(
    ("system", "functions", "expected"),
    [
        ("linux", ["mallopt"], [(-3, 2**31 - 1), (-1, 2**31 - 1)]),  # M_MMAP_THRESHOLD, M_TRIM_THRESHOLD in malloc.h
        ("linux", [], []),
        ("darwin", ["mallopt"], []),
    ],
)
def test_glibc_is_asked_to_keep_what_it_would_map_anew_or_trim(monkeypatch, system, functions, expected):
    asked = []
    library = SimpleNamespace(**dict.fromkeys(functions, lambda *setting: asked.append(setting)))
    monkeypatch.setattr(device.sys, "platform", system)
    monkeypatch.setattr(device.ctypes, "CDLL", lambda _: library)
    device.keep_freed_memory()
    assert asked == expected


def test_autocast_multiplies_in_the_chosen_precision():
    a = torch.ones(2, 2)
    for precision, dtype in (("bf16", torch.bfloat16), ("fp32", torch.float32)):
        with resolve_compute(RunSection(device="cpu", precision=precision), 64).autocast():
            assert (a @ a).dtype == dtype
