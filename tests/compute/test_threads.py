"""The files are those of the kernel's documentation: admin-guide/cgroup-v2, scheduler/sched-bwc, proc(5)."""

from __future__ import annotations

import os

import pytest

from gptlite.compute.choice import Choice
from gptlite.compute.threads import available_threads, check_threads
from gptlite.errors import ConfigError

V2 = "31 23 0:28 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = "33 31 0:30 {top} /sys/fs/cgroup/cpu,cpuacct rw,nosuid - cgroup cgroup rw,cpu,cpuacct\n"
OTHERS = "23 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
OTHERS += "34 31 0:31 / /sys/fs/cgroup/memory rw - cgroup cg rw,memory\n"


@pytest.fixture(autouse=True)
def eight_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(3, 11)), raising=False)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)


def test_without_limits_every_core_that_the_process_may_run_on_counts(tmp_path):
    assert available_threads(tmp_path) == Choice(8, "the cores this process may use")


def test_a_system_without_affinity_counts_all_cores(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 5)
    assert available_threads(tmp_path).value == 5


@pytest.mark.parametrize(
    ("limit", "threads", "reason"),
    [
        ("150000 100000\n", 2, "the cgroup allows 1.5 cores"),
        ("20000 100000\n", 1, "the cgroup allows 0.2 cores"),
        ("700000 100000\n", 7, "the cgroup allows 7 cores"),
        ("750000 100000\n", 8, "the cores this process may use"),
        ("6400000 100000\n", 8, "the cores this process may use"),
        ("max 100000\n", 8, "the cores this process may use"),
        ("", 8, "the cores this process may use"),
    ],
)
def test_a_quota_of_version_2_is_rounded_up_to_threads(machine, limit, threads, reason):
    root = machine("0::/\n", OTHERS + V2, {"sys/fs/cgroup/cpu.max": limit})
    assert available_threads(root) == Choice(threads, reason)


@pytest.mark.parametrize(("quota", "threads"), [("300000", 3), ("-1", 8)])
def test_a_quota_of_version_1(machine, quota, threads):
    folder = "sys/fs/cgroup/cpu,cpuacct/batch"
    limits = {f"{folder}/cpu.cfs_quota_us": f"{quota}\n", f"{folder}/cpu.cfs_period_us": "100000\n"}
    root = machine("5:memory:/x\n4:cpu,cpuacct:/batch\n0::/\n", OTHERS + V2 + V1.format(top="/"), limits)
    assert available_threads(root).value == threads


def test_the_tightest_of_the_groups_around_the_process_decides(machine):
    limits = {
        "sys/fs/cgroup/user.slice/cpu.max": "200000 100000\n",
        "sys/fs/cgroup/user.slice/job/cpu.max": "500000 100000\n",
        "sys/fs/cgroup/user.slice/another/cpu.max": "100000 100000\n",
    }
    assert available_threads(machine("0::/user.slice/job\n", OTHERS + V2, limits)).value == 2


@pytest.mark.parametrize("group", ["/docker/f00", "/docker/f00/inner", "/elsewhere"])
def test_a_container_that_sees_only_its_own_group_finds_it_at_the_mount(machine, group):
    folder = "sys/fs/cgroup/cpu,cpuacct"
    limits = {f"{folder}/cpu.cfs_quota_us": "250000\n", f"{folder}/cpu.cfs_period_us": "100000\n"}
    root = machine(f"4:cpu,cpuacct:{group}\n", OTHERS + V1.format(top="/docker/f00"), limits)
    assert available_threads(root) == Choice(3, "the cgroup allows 2.5 cores")


@pytest.mark.parametrize(("processes", "threads"), [("2", 4), ("3", 2), ("16", 1)])
def test_processes_of_one_machine_share_its_cores(tmp_path, monkeypatch, processes, threads):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", processes)
    reason = f"the cores this process may use, shared by {processes} processes"
    assert available_threads(tmp_path) == Choice(threads, reason)


@pytest.mark.parametrize(
    ("cap", "threads", "reason"),
    [
        ("3", 3, "GPTLITE_THREADS allows no more"),
        ("8", 8, "the cores this process may use"),
        ("100", 8, "the cores this process may use"),
        ("", 8, "the cores this process may use"),
    ],
)
def test_the_variable_is_an_upper_limit(tmp_path, monkeypatch, cap, threads, reason):
    monkeypatch.setenv("GPTLITE_THREADS", cap)
    assert available_threads(tmp_path) == Choice(threads, reason)


@pytest.mark.parametrize("cap", ["0", "-1", "two", "1.5", " ", "\u0663"])
def test_a_variable_that_is_no_number_of_threads_is_named(tmp_path, monkeypatch, cap):
    monkeypatch.setenv("GPTLITE_THREADS", cap)
    with pytest.raises(ConfigError, match=r"^GPTLITE_THREADS: .*Set it to a positive integer"):
        available_threads(tmp_path)


def test_the_environment_limits_only_auto(monkeypatch):
    monkeypatch.setenv("GPTLITE_THREADS", "many")
    check_threads(2)
    with pytest.raises(ConfigError):
        check_threads("auto")
