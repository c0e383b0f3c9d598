"""Several processes compare what each of them says of itself. How they meet: tests/training/test_processes.py."""

from __future__ import annotations

import pytest

from gptlite.compute import distributed, processes
from gptlite.errors import ConfigError, StorageError


def test_every_difference_is_named_with_both_sides(monkeypatch):
    facts = [{"torch": "2.13.0", "text": "ab"}, {"torch": "2.13.0", "text": "ab"}, {"torch": "2.12.1", "run": "new"}]
    monkeypatch.setattr(distributed, "gather", lambda *_: facts)
    with pytest.raises(ConfigError) as error:
        distributed.check_same(facts[0])
    assert [problem.sentence.partition(". Start")[0] for problem in error.value.problems] == [
        "torch is 2.13.0 in process 0 and 2.12.1 in process 2",
        "text is ab in process 0 and missing in process 2",
        "run is missing in process 0 and new in process 2",
    ]


def test_a_lost_process_is_one_line_and_a_bug_stays_a_bug():
    lost = "[/pytorch/gloo/pair.cc:553] Connection closed by peer [127.0.0.1]:1705. It crashed"
    sentence = r"has ended, or cannot be reached \(Connection closed by peer \[127.0.0.1\]:1705\)"
    with pytest.raises(StorageError, match=sentence), distributed.peer_errors():
        raise RuntimeError(lost)
    with pytest.raises(RuntimeError, match="sizes of tensors"), distributed.peer_errors():
        raise RuntimeError("the sizes of tensors must match")


# Nine tasks on five nodes, as srun describes them to the last one (srun's manual, OUTPUT ENVIRONMENT VARIABLES).
STEP = {
    "SLURM_STEP_NUM_TASKS": "9",
    "SLURM_STEP_TASKS_PER_NODE": "2(x4),1",
    "SLURM_STEP_NODELIST": "node[03-05,9],login",
    "SLURM_PROCID": "8",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "4",
    "SLURM_JOB_ID": "1234567",
    "SLURM_STEP_ID": "0",
}


def test_the_tasks_of_slurm_are_the_processes_of_a_run():
    assert processes.as_torchrun(STEP) == {
        "WORLD_SIZE": "9",
        "RANK": "8",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": "node03",
        "MASTER_PORT": "24567",
    }
    assert processes.as_torchrun({**STEP, "SLURM_NODEID": "3"})["LOCAL_WORLD_SIZE"] == "2"
    for nodes, first in (("a,b", "a"), ("gpu-a[1,3]", "gpu-a1"), ("n[10-12]-ib", "n10-ib")):
        assert processes.as_torchrun({**STEP, "SLURM_STEP_NODELIST": nodes})["MASTER_ADDR"] == first


def test_an_address_that_is_set_wins_and_what_slurm_left_out_is_named():
    assert "MASTER_PORT" not in processes.as_torchrun({**STEP, "MASTER_PORT": "29500"})
    with pytest.raises(ConfigError, match="there are 9 tasks, but SLURM_STEP_NODELIST, SLURM_JOB_ID are not set"):
        processes.as_torchrun({k: v for k, v in STEP.items() if k not in ("SLURM_STEP_NODELIST", "SLURM_JOB_ID")})


def test_torchrun_and_single_tasks_need_nothing_of_slurm():
    assert processes.as_torchrun({}) == {}
    assert processes.as_torchrun({**STEP, "WORLD_SIZE": "2"}) == {}
    assert processes.as_torchrun({**STEP, "SLURM_STEP_NUM_TASKS": "1"}) == {}
    assert processes.as_torchrun({"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4"}) == {}  # in sbatch's own script
