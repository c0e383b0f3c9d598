"""How much memory there is: the files are those of the kernel's documentation (cgroup-v2, cgroup-v1/memory)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from gptlite.compute.memory import memory_of, peak_bytes, resident_bytes

CPU = torch.device("cpu")
V2 = ("0::/batch/job7\n", "31 23 0:28 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n")
V1 = ("5:memory:/job7\n3:cpu,cpuacct:/\n", "34 31 0:31 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n")
GIB = 2**30


@pytest.fixture(autouse=True)
def sixteen_gib(monkeypatch):
    values = {"SC_PHYS_PAGES": 16 * GIB // 4096, "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr(os, "sysconf", values.__getitem__)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)


@pytest.mark.parametrize(
    ("where", "limits", "expected"),
    [
        (V2, {}, 16 * GIB),
        (V2, {"sys/fs/cgroup/batch/job7/memory.max": f"{2 * GIB}\n"}, 2 * GIB),
        (V2, {"sys/fs/cgroup/batch/job7/memory.max": "max\n", "sys/fs/cgroup/batch/memory.max": f"{GIB}\n"}, GIB),
        (V2, {"sys/fs/cgroup/batch/memory.max": f"{99 * GIB}\n"}, 16 * GIB),
        (V1, {"sys/fs/cgroup/memory/job7/memory.limit_in_bytes": f"{3 * GIB}\n"}, 3 * GIB),
        (V1, {"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, 16 * GIB),
    ],
)
def test_memory_is_the_machines_or_what_a_cgroup_around_us_allows(machine, where, limits, expected):
    assert memory_of(CPU, machine(*where, limits)) == expected


def test_processes_of_a_run_share_the_memory_of_their_machine(machine, monkeypatch):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert memory_of(CPU, machine(*V2, {})) == 4 * GIB


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="what Linux says of a process")
def test_what_is_held_and_the_most_that_was_are_those_of_the_system(monkeypatch):
    monkeypatch.undo()
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    resident, peak = (int(status[name].removesuffix("kB")) * 1024 for name in ("VmRSS", "VmHWM"))
    assert resident_bytes() == pytest.approx(resident, rel=0.05)
    assert peak_bytes(CPU) == pytest.approx(peak, rel=0.05)
