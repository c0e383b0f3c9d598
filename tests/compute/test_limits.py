"""The files are those of the kernel's documentation: admin-guide/cgroup-v2."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from gptlite.compute.choice import Choice
from gptlite.compute.device import peak_bytes, resident_bytes
from gptlite.compute.limits import available_threads, machine_memory
from gptlite.errors import ConfigError

CORES = "the cores this process may use"
GIB = 2**30


@pytest.fixture
def machine(tmp_path: Path) -> Callable[[str, dict[str, str]], Path]:
    """Writes the files that say where a process is and what limits it has, and returns the folder of them."""

    def write(groups: str, limits: dict[str, str]) -> Path:
        files = {f"sys/fs/cgroup/{name}": text for name, text in limits.items()}
        for name, text in {"proc/self/cgroup": groups, **files}.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        return tmp_path

    return write


@pytest.fixture
def _eight_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(3, 11)), raising=False)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)


@pytest.mark.usefixtures("_eight_cores")
@pytest.mark.parametrize(
    ("limit", "threads", "reason"),
    [
        ("150000 100000\n", 2, "the cgroup allows 1.5 cores"),
        ("20000 100000\n", 1, "the cgroup allows 0.2 cores"),
        ("700000 100000\n", 7, "the cgroup allows 7 cores"),
        ("750000 100000\n", 8, CORES),
        ("max 100000\n", 8, CORES),
        ("", 8, CORES),
    ],
)
def test_a_quota_is_rounded_up_to_threads(machine, limit, threads, reason):
    assert available_threads(machine("0::/\n", {"cpu.max": limit})) == Choice(threads, reason)


@pytest.mark.usefixtures("_eight_cores")
def test_the_tightest_of_the_groups_around_the_process_decides(machine):
    limits = {"user.slice": 2, "user.slice/job": 5, "user.slice/another": 1}
    files = {f"{group}/cpu.max": f"{cores}00000 100000\n" for group, cores in limits.items()}
    assert available_threads(machine("5:cpu:/other\n0::/user.slice/job\n", files)).value == 2


@pytest.mark.usefixtures("_eight_cores")
@pytest.mark.parametrize(
    ("cap", "processes", "threads", "reason"),
    [
        ("3", "1", 3, "GPTLITE_THREADS allows no more"),
        ("100", "1", 8, CORES),
        ("", "1", 8, CORES),
        ("", "3", 2, f"{CORES}, shared by 3 processes"),
        ("", "16", 1, f"{CORES}, shared by 16 processes"),
    ],
)
def test_the_variable_is_an_upper_limit_and_processes_share(tmp_path, monkeypatch, cap, processes, threads, reason):
    monkeypatch.setenv("GPTLITE_THREADS", cap)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", processes)
    assert available_threads(tmp_path) == Choice(threads, reason)


@pytest.mark.parametrize("cap", ["0", "-1", "two", "1.5", " ", "\u0663"])
def test_a_variable_that_is_no_number_of_threads_is_named(monkeypatch, cap):
    monkeypatch.setenv("GPTLITE_THREADS", cap)
    with pytest.raises(ConfigError, match=r"^GPTLITE_THREADS: .*Set it to a positive integer"):
        available_threads()


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({}, 16 * GIB),
        ({"batch/job7/memory.max": f"{2 * GIB}\n"}, 2 * GIB),
        ({"batch/job7/memory.max": "max\n", "batch/memory.max": f"{GIB}\n"}, GIB),
        ({"batch/memory.max": f"{99 * GIB}\n"}, 16 * GIB),
    ],
)
def test_memory_is_the_processs_part_of_the_machines_or_of_what_a_cgroup_around_it_allows(
    machine, monkeypatch, limits, expected
):
    monkeypatch.setattr(os, "sysconf", {"SC_PHYS_PAGES": 16 * GIB // 4096, "SC_PAGE_SIZE": 4096}.__getitem__)
    root = machine("0::/batch/job7\n", limits)
    for processes in (1, 4):
        monkeypatch.setenv("LOCAL_WORLD_SIZE", str(processes))
        assert machine_memory(root) == expected // processes


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="what Linux says of a process")
def test_what_is_held_and_the_most_that_was_are_those_of_the_system():
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    resident, peak = (int(status[name].removesuffix("kB")) * 1024 for name in ("VmRSS", "VmHWM"))
    assert resident_bytes() == pytest.approx(resident, rel=0.05)
    assert peak_bytes(torch.device("cpu")) == pytest.approx(peak, rel=0.05)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_peak_is_not_that_of_the_process_that_started_this_one() -> None:
    child = "import torch; from gptlite.compute.device import peak_bytes; print(peak_bytes(torch.device('cpu')))"
    parent = (
        f"import subprocess, sys; held = b'x' * 10**9; subprocess.run([sys.executable, '-c', {child!r}], check=True)"
    )
    printed = subprocess.run([sys.executable, "-c", parent], check=True, capture_output=True).stdout
    assert 0 < int(printed) < 7 * 10**8
