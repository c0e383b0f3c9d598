from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from gptlite.compute.limits import ALONE, BUSY_MACHINE, set_short_spin, short_spin


@pytest.mark.parametrize(
    ("text", "busy"),
    [
        ("cpu 1 2\nprocs_running 1\nprocs_blocked 4\n", False),  # this process
        ("cpu 1 2\nprocs_running 2\nprocs_blocked 0\n", True),
        ("procs_running 0\n", False),  # as some sandboxes say
        ("cpu 1 2\n", False),
        (None, False),  # no such file, as on macOS
    ],
)
def test_other_programs_are_seen_where_the_system_counts_them(tmp_path, text, busy):
    if text is not None:
        (tmp_path / "stat").write_text(text)
    assert short_spin(tmp_path / "stat") == (BUSY_MACHINE if busy else ALONE)


@pytest.mark.parametrize(
    ("busy", "environment", "after"),
    [
        (False, {}, ALONE),
        (True, {}, BUSY_MACHINE),
        (False, {"GOMP_SPINCOUNT": "5"}, {"GOMP_SPINCOUNT": "5", "KMP_BLOCKTIME": "1"}),
        (False, {"KMP_BLOCKTIME": "infinite"}, {"GOMP_SPINCOUNT": "10000", "KMP_BLOCKTIME": "infinite"}),
        (False, {"OMP_WAIT_POLICY": "active"}, {"OMP_WAIT_POLICY": "active"}),
        (False, {"OMP_NUM_THREADS": "3"}, {"OMP_NUM_THREADS": "3", **ALONE}),
        (False, {"OMP_DYNAMIC": "true"}, ALONE),  # or the number of threads changes on the way
    ],
)
def test_a_short_spin_is_set_where_the_user_has_set_nothing(monkeypatch, busy, environment, after):
    monkeypatch.setattr("gptlite.compute.limits.short_spin", lambda: BUSY_MACHINE if busy else ALONE)
    before = dict(environment)
    set_short_spin(environment, modules=["torch"])  # which has read its settings
    assert environment == before
    set_short_spin(environment, modules=["numpy"])
    assert environment == after


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """A Python process in a folder with a text and a config."""
    (folder / "story.txt").write_text("the cat sat on the mat. " * 40, encoding="utf-8")
    (folder / "nano.yaml").write_text(
        "data: {source: story.txt}\ntokenizer: {kind: char}\nlog: {tensorboard: false}\nrun: {threads: 1}\n"
        "model: {n_layer: 1, n_head: 1, n_embd: 8, block_size: 8}\ntrain: {max_steps: 2, warmup_steps: 0}\n",
        encoding="utf-8",
    )
    environment = {name: value for name, value in os.environ.items() if name not in ALONE}
    environment |= {"PYTHONPATH": str(Path(__file__).parents[2]), "OMP_DISPLAY_ENV": "verbose"}
    environment |= {"GLOO_SOCKET_IFNAME": "lo"}
    line = [sys.executable, *command]
    done = subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.skipif(not torch.backends.openmp.is_available() or sys.platform != "linux", reason="not GNU OpenMP")
@pytest.mark.parametrize(
    ("program", "spins"),
    [
        (["-m", "gptlite", "train", "-c", "nano.yaml"], ("10000", "2000")),  # by what else the machine does
        (["-c", "import gptlite; gptlite.train('nano.yaml')"], ("10000", "2000")),
        (["-c", "import torch, gptlite; gptlite.train('nano.yaml')"], ("300000",)),  # its own
    ],
)
def test_the_runtime_itself_says_how_long_it_spins(tmp_path, program, spins):
    shown = run(tmp_path, *program).stderr
    (spin,) = re.findall(r"GOMP_SPINCOUNT = '(\d+)'", shown)
    assert spin in spins


@pytest.mark.slow
def test_the_processes_of_sweeps_and_of_torchrun_spin_briefly_and_import_nothing_from_the_working_directory(tmp_path):
    (tmp_path / "safetensors.py").write_text("raise SystemExit('imported from the working directory')")
    torchrun, gptlite = (str(Path(sys.executable).with_name(program)) for program in ("torchrun", "gptlite"))
    run(tmp_path, gptlite, "train", "-c", "nano.yaml", "--sweep", "train.lr=0.1")
    launcher = [torchrun, "--standalone", "--nproc-per-node=2", "--no-python"]  # as in docs/training.md
    shown = run(tmp_path, *launcher, gptlite, "train", "-c", "nano.yaml", "--name", "two").stderr
    assert len(re.findall(r"GOMP_SPINCOUNT = '(?:10000|2000)'", shown)) == 2
    assert len(list(tmp_path.glob("runs/*/run.json"))) == 2
