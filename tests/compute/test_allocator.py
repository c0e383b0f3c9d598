from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
import torch
from gptlite.compute.allocator import keep_pages
if sys.argv[1] == "keep":
    keep_pages()
torch.set_num_threads(1)
def faults():
    torch.ones(12_000_000).sum()  # 48 MB
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
first = faults()
print(faults() - first)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the setting is glibc's")
def test_a_large_buffer_is_zeroed_by_the_system_once_and_not_at_every_use():
    def second_use(mode: str) -> int:
        done = subprocess.run([sys.executable, "-c", PROGRAM, mode], capture_output=True, text=True, check=True)
        return int(done.stdout)

    # 48 MB are 11,719 pages of 4 KiB; huge pages may make them fewer.
    assert second_use("keep") < second_use("give") / 4
