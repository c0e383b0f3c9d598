from __future__ import annotations

import pytest
import torch

from gptlite.compute.choice import GIVEN, Choice
from gptlite.compute.compiling import choose_compile, compile_obstacle
from gptlite.errors import ConfigError


@pytest.fixture
def no_compiler(tmp_path, monkeypatch):
    """A machine whose PATH holds no program, and where nothing was compiled before."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))


TOO_SHORT = Choice(False, "so short a training does not pay for the slow start of compiling")
FOR_GPU = Choice(True, "torch can compile for this GPU")


@pytest.mark.parametrize(
    ("wanted", "device", "flops", "minutes", "obstacle", "expected"),
    [
        ("auto", "cpu", 1e18, None, "never asked", Choice(False, "on cpu compiling seldom pays for its slow start")),
        ("auto", "mps", 1e18, None, "never asked", Choice(False, "on mps compiling seldom pays for its slow start")),
        ("auto", "cuda", 2e16, None, "", FOR_GPU),
        ("auto", "cuda", 2e16, None, "no Triton", Choice(False, "no Triton")),
        ("auto", "cuda", 9e15, None, "never asked", TOO_SHORT),
        ("auto", "cuda", 0.0, 5.0, "", FOR_GPU),  # the updates of a training that the clock ends are not known
        ("auto", "cuda", 0.0, 4.9, "never asked", TOO_SHORT),
        (False, "cuda", 1e18, None, "never asked", Choice(False, GIVEN)),
        (True, "cpu", 0.0, None, "", Choice(True, GIVEN)),
    ],
)
def test_a_gpu_is_compiled_for_where_torch_can_and_it_pays(wanted, device, flops, minutes, obstacle, expected):
    def ask(_: str) -> str:
        assert obstacle != "never asked"
        return obstacle

    assert choose_compile(wanted, device, ask, flops=flops, minutes=minutes) == expected


@pytest.mark.parametrize(("capability", "can"), [((7, 0), True), ((9, 0), True), ((6, 1), False)])
def test_triton_knows_gpus_from_volta_on(monkeypatch, capability, can):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    monkeypatch.setattr(torch, "ones", lambda *_, device: device)
    monkeypatch.setattr(torch, "compile", lambda f: lambda x: x)
    expected = "" if can else "Triton needs a GPU of compute capability 7.0 or more"
    assert compile_obstacle("cuda") == expected


def test_the_first_line_of_torchs_error_is_the_obstacle(monkeypatch):
    def compile_(_):
        raise RuntimeError("Cannot find a working triton installation.\nSet TORCHDYNAMO_VERBOSE=1")

    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    monkeypatch.setattr(torch, "compile", compile_)
    monkeypatch.setattr(torch, "ones", lambda *_, device: device)
    assert compile_obstacle("cuda") == "torch cannot compile here (Cannot find a working triton installation.)"


@pytest.mark.usefixtures("no_compiler")
@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # torch, of itself
def test_without_a_cpp_compiler_what_was_asked_for_is_refused():
    with pytest.raises(ConfigError, match=r"is true, but .*No working C\+\+ compiler.*Install") as refused:
        choose_compile(True, "cpu", compile_obstacle, flops=0.0, minutes=None)
    assert "\n" not in str(refused.value)
