from __future__ import annotations

import pytest
import torch

from gptlite.compute.compiling import choose_compile
from gptlite.errors import ConfigError

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)


@pytest.fixture
def no_compiler(tmp_path, monkeypatch):
    """A machine whose PATH holds no program, and where nothing was compiled before."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))


@pytest.mark.parametrize("device", [CPU, torch.device("mps")], ids=str)
def test_auto_does_not_compile_on_a_cpu_or_on_mps_and_does_not_try(monkeypatch, device):
    monkeypatch.setattr(torch, "compile", pytest.fail)
    assert choose_compile("auto", device) == (
        False,
        f"compile false: on {device.type} it seldom pays for its slow start",
    )
    assert choose_compile(False, device) == (False, "compile false: as asked")


@pytest.mark.parametrize("capability", [(7, 0), (9, 0)])
def test_auto_compiles_on_a_gpu_that_triton_knows(monkeypatch, capability):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    monkeypatch.setattr(torch, "ones", lambda *_, device: device)
    monkeypatch.setattr(torch, "compile", lambda f: lambda x: x)
    assert choose_compile("auto", GPU)[0]


def test_auto_leaves_a_gpu_alone_that_is_too_old(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (6, 1))
    chosen, reason = choose_compile("auto", GPU)
    assert not chosen
    assert reason == "compile false: Triton needs a GPU of compute capability 7.0 or more"


def test_auto_leaves_a_gpu_alone_where_triton_is_missing(monkeypatch):
    def compile_(_):
        raise RuntimeError("Cannot find a working triton installation.\nSet TORCHDYNAMO_VERBOSE=1")

    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    monkeypatch.setattr(torch, "compile", compile_)
    monkeypatch.setattr(torch, "ones", lambda *_, device: device)
    reason = "compile false: torch cannot compile here (Cannot find a working triton installation.)"
    assert choose_compile("auto", GPU) == (False, reason)


@pytest.mark.usefixtures("no_compiler")
@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # torch, of itself
def test_without_a_cpp_compiler_what_was_asked_for_is_refused():
    with pytest.raises(
        ConfigError, match=r"^run\.compile = true: .*No working C\+\+ compiler.*; install what"
    ) as refused:
        choose_compile(True, CPU)
    assert "\n" not in str(refused.value)
