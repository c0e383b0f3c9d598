"""The processes that share a run, as torchrun numbers and counts them in the environment; without it there is one."""

from __future__ import annotations

import gc
import os
import re
import sys
from collections.abc import Mapping

from gptlite.errors import ConfigError


def world_size() -> int:
    """Return how many processes this run has, on all machines."""
    return _number("WORLD_SIZE", 1)


def local_world_size() -> int:
    """Return how many of them are on this machine."""
    return _number("LOCAL_WORLD_SIZE", 1)


def local_rank() -> int:
    """Return which of this machine's GPUs is ours."""
    return _number("LOCAL_RANK", 0)


def rank() -> int:
    """Return the number of this process among all."""
    return 0 if world_size() == 1 else _number("RANK", 0)


def is_main() -> bool:
    """Return whether this process is the one that writes."""
    return rank() == 0


def as_torchrun(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that torchrun would set, from those of Slurm; none without several tasks of Slurm's srun.

    What is set already stays as it is. ConfigError where Slurm's variables are incomplete.
    Slurm writes 4(x2),3 for the tasks on each of three nodes, and node[03-05,9],login for the names of five.
    """
    tasks = environ.get("SLURM_STEP_NUM_TASKS", "1")
    if "WORLD_SIZE" in environ or "SLURM_PROCID" not in environ or tasks == "1":
        return {}
    needed = ("STEP_TASKS_PER_NODE", "STEP_NODELIST", "LOCALID", "NODEID", "JOB_ID", "STEP_ID")
    if missing := [name for name in (f"SLURM_{each}" for each in needed) if name not in environ]:
        advice = "Start the tasks with srun, or unset this variable."
        raise ConfigError(
            f"there are {tasks} tasks, but {', '.join(missing)} are not set. {advice}", "SLURM_STEP_NUM_TASKS"
        )
    counts = re.findall(r"(\d+)(?:\(x(\d+)\))?", environ["SLURM_STEP_TASKS_PER_NODE"])
    per_node = [n for n, times in counts for _ in range(int(times or 1))]
    nodes = re.sub(r"\[([^],-]+)[^]]*\]", r"\1", environ["SLURM_STEP_NODELIST"])  # of each bracket the first name
    port = 20_000 + (int(environ["SLURM_JOB_ID"]) + int(environ["SLURM_STEP_ID"])) % 10_000  # systems give higher ones
    found = {
        "WORLD_SIZE": tasks,
        "RANK": environ["SLURM_PROCID"],
        "LOCAL_RANK": environ["SLURM_LOCALID"],
        "LOCAL_WORLD_SIZE": per_node[int(environ["SLURM_NODEID"])],
        "MASTER_ADDR": nodes.partition(",")[0],
        "MASTER_PORT": str(port),
    }
    return {name: value for name, value in found.items() if name not in environ}


def _number(name: str, least: int) -> int:
    """Read a variable that torchrun sets: `least` if unset."""
    return read_number(name, least, least, "torchrun sets a number. Unset it.")


def read_number(name: str, default: int, least: int, advice: str) -> int:
    """Return the value of an environment variable, `default` if unset. ConfigError unless it is `least` or more."""
    text = os.environ.get(name) or str(default)
    if not re.fullmatch("[0-9]{1,9}", text) or int(text) < least:
        raise ConfigError(f"the environment variable is {text[:40]!r}. {advice}", name)
    return int(text)


def leave_group() -> None:
    """Leave the group that the processes of a run have formed, if they have.

    Otherwise gloo's threads, which still run, abort Python's exit.
    """
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_initialized():
        distributed.destroy_process_group()
        gc.collect()  # a module that shares gradients holds the group in a cycle
