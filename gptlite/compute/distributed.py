"""The processes that share one run: how they meet, whether all were started alike, and how they share tensors.

They meet at a key-value store, which torchrun or the process of rank 0 keeps at MASTER_ADDR:MASTER_PORT, and form a
group, in which texts and numbers are exchanged by gloo, and tensors of GPUs by NCCL.

A run of W processes takes the same batches as a run of one: process r computes its share of the rows of each
batch, and the sums of losses and gradients are added up. `torchrun --no-python gptlite train ...` sets the
environment; with `-m` in place of `--no-python`, Python would import modules from the working directory.
"""

from __future__ import annotations

import itertools
import os
import re
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from time import monotonic, sleep
from typing import Any, TypeVar

import torch
import torch.distributed as tdist
from torch import Tensor

from gptlite.compute.processes import rank, read_number, world_size
from gptlite.errors import ConfigError, StorageError
from gptlite.formatting import Say, say_nothing

T = TypeVar("T")
_groups = itertools.count()  # every process joins as many, so its number names each
PATIENCE, SILENCE = 1800.0, 5.0  # seconds that a process waits for others, and how long it does so without a word


def join(say: Say = say_nothing) -> None:
    """Join the group of the run's processes, until `leave_group`; `say` gets a line where others are waited for.

    Raise ConfigError where the environment lacks an address, StorageError where its port is taken or nobody answers.
    """
    if tdist.is_initialized():
        return
    if missing := [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]:
        raise ConfigError(
            f"there are to be {world_size()} processes, but {', '.join(missing)} are not set. Start them with "
            "torchrun, or unset this variable.",
            "WORLD_SIZE",
        )
    host, port = os.environ["MASTER_ADDR"], read_number("MASTER_PORT", 0, 1, "A port is a number below 65536.")
    is_host = rank() == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    if not is_host:
        wait_for(lambda: _answers(host, port), f"process 0 at {host}:{port} (MASTER_ADDR and MASTER_PORT)", say)
    try:  # whoever listens has answered before, so what takes longer now is no store
        found = tdist.TCPStore(  # type: ignore[attr-defined]
            host, port, world_size(), is_host, timedelta(seconds=30), wait_for_workers=False
        )
    except tdist.DistError as error:
        what = "another program uses this port" if "EADDRINUSE" in str(error) else _reason(error)
        raise StorageError(
            f"the processes cannot meet there: {what}. Set another MASTER_PORT.", f"{host}:{port}"
        ) from None
    # torchrun's store outlives processes, which start again after a failure, or when more machines have come.
    start = f"{os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)} {world_size()} {next(_groups)}"
    store: Any = tdist.PrefixStore(start, found)  # type: ignore[attr-defined]
    store.set(str(rank()), "")
    for process in range(world_size()):
        wait_for(partial(store.check, [str(process)]), f"process {process} of {world_size()} (RANK)", say)
    tdist.init_process_group(
        "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo",
        store=store,
        rank=rank(),
        world_size=world_size(),
        timeout=timedelta(seconds=PATIENCE),
    )


def _answers(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=1).close()
    except OSError:
        return False
    return True


def wait_for(has_come: Callable[[], bool], whom: str, say: Say) -> None:
    """Return once `has_come` is true, with a line after a while. Raise StorageError when it never is."""
    started_at, silent = monotonic(), True
    while not has_come():
        waited = monotonic() - started_at
        if waited > PATIENCE:
            raise StorageError(
                f"{whom} did not come this far within {PATIENCE / 60:g} minutes. Start all processes.", "WORLD_SIZE"
            )
        if silent and waited > SILENCE:
            say(f"waiting for {whom}")
            silent = False
        sleep(0.02)


@contextmanager
def peer_errors() -> Iterator[None]:
    """Turn what torch's exchanges raise where another process has ended into a StorageError."""
    try:
        yield
    except RuntimeError as error:
        if not (isinstance(error, tdist.DistError) or re.search("gloo|NCCL", str(error))):
            raise
        raise StorageError(
            f"another process of this run has ended, or cannot be reached ({_reason(error)}). What was saved "
            "is kept. See what the others say, and start all of them again.",
            f"process {rank()} of {world_size()}",
        ) from error


def _reason(error: Exception) -> str:
    """Return the first sentence of an error of torch, without the place in its source."""
    return re.sub(r"^\[\S*\] ", "", str(error).partition("\n")[0]).partition(". ")[0].rstrip(".")


@peer_errors()
def gather(value: T, say: Say = say_nothing) -> list[T]:
    """Return the value of every process, by rank. Raise what `join` raises."""
    if world_size() == 1:
        return [value]
    join(say)
    values = [value] * world_size()
    tdist.all_gather_object(values, value)
    return values


def check_same(facts: Mapping[str, str]) -> None:
    """Raise ConfigError, in all processes, where a fact about one is not that about the first."""
    first, *others = gather(dict(facts))
    problems = [
        f"{name} is {first.get(name, 'missing')} in process 0 and {other.get(name, 'missing')} in process {number}. "
        "Start all of them with the same command, text and versions."
        for number, other in enumerate(others, start=1)
        for name in {**first, **other}
        if first.get(name) != other.get(name)
    ]
    if problems:
        raise ConfigError(problems, f"WORLD_SIZE {world_size()}")


@peer_errors()
def whole(tensor: Tensor) -> Tensor:
    """Return a tensor of which each process may hold a part. All of them must call it."""
    found: Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return found


def own_part(tensor: Tensor) -> Tensor:
    """Return what this process holds of a tensor: all of it, or a part."""
    found: Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return found


def part_like(tensor: Tensor, other: Any) -> Tensor:
    """Return the part of a whole tensor that this process holds of another of its shape; all of it if that is whole."""
    if not hasattr(other, "full_tensor"):
        return tensor
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(tensor, other.device_mesh, other.placements, src_data_rank=None)


@dataclass(frozen=True)
class Dist:
    """This process among `world_size`; rank 0 alone writes files and the terminal."""

    rank: int = 0
    world_size: int = 1

    @classmethod
    @peer_errors()
    def from_environment(cls, device: torch.device) -> Dist:
        """Join the other processes, if there are any, to exchange tensors of `device`. Raise what `join` raises."""
        if world_size() > 1:
            join()
            if device.type == "cuda":
                torch.cuda.set_device(device)
        return cls(rank(), world_size())

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    @peer_errors()
    def sum(self, tensor: Tensor) -> Tensor:
        """Add up `tensor` over all processes, in place."""
        if self.world_size > 1:
            tdist.all_reduce(tensor)
        return tensor

    @peer_errors()
    def largest(self, number: int) -> int:
        """Return the largest of a number over all processes, so that all processes take the same branch."""
        tensor = torch.tensor(number)
        if self.world_size > 1:
            tdist.all_reduce(tensor, tdist.ReduceOp.MAX)
        return int(tensor)

    def sum_numbers(self, numbers: Sequence[float]) -> list[float]:
        """Add up each number over all processes, in double precision."""
        summed: list[float] = self.sum(torch.tensor(numbers, dtype=torch.float64)).tolist()
        return summed

    def number_of_main(self, number: float) -> float:
        """Return the main process's number, on every process: of clocks, so that all take the same branch."""
        return self.sum_numbers([number if self.is_main else 0.0])[0]
