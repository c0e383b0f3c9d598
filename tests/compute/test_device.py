from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from gptlite.compute import device
from gptlite.compute.device import Hardware, compile_obstacle, computes_in_bf16, settings
from gptlite.config.schema import RunSection
from gptlite.planning.auto import resolve_compute


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


def test_the_first_line_of_torchs_error_is_the_obstacle(monkeypatch):
    def compile_(_):
        raise RuntimeError("Cannot find a working triton installation.\nSet TORCHDYNAMO_VERBOSE=1")

    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    monkeypatch.setattr(torch, "compile", compile_)
    monkeypatch.setattr(torch, "ones", lambda *_, device: device)
    assert compile_obstacle("cuda") == "torch cannot compile here (Cannot find a working triton installation.)"
