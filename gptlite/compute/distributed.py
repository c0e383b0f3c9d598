"""The processes that share one run. Communication between them lives here.

A run of W processes takes the same batches as a run of one: process r computes its share of the rows of each
batch, and the sums of losses and gradients are added up. `torchrun --no-python gptlite train ...` sets the
environment; with `-m` in place of `--no-python`, Python would import modules from the working directory.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as tdist
from torch import Tensor

from gptlite.compute.processes import rank, world_size
from gptlite.compute.rendezvous import gather, meet, peer_errors


@dataclass(frozen=True)
class Dist:
    """This process among `world_size`; rank 0 alone writes files and the terminal. Exchanges happen on `device`."""

    rank: int = 0
    world_size: int = 1
    device: str = "cpu"

    @classmethod
    @peer_errors()
    def from_environment(cls, device: torch.device) -> Dist:
        """Join the group of the run's processes; a single process where there is none. Raise what `meet` raises."""
        if world_size() == 1:
            return cls()
        name = gather(os.urandom(8).hex())[0]  # a new one each time, since a store is used once
        store = tdist.PrefixStore(name, meet())  # type: ignore[attr-defined]
        on_gpu = device.type == "cuda"
        if on_gpu:
            torch.cuda.set_device(device)  # collectives of objects use the current one
        tdist.init_process_group(
            "nccl" if on_gpu else "gloo",
            store=store,
            rank=rank(),
            world_size=world_size(),
            device_id=device if on_gpu else None,
        )
        return cls(tdist.get_rank(), tdist.get_world_size(), str(device))

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    @peer_errors()
    def sum(self, tensor: Tensor) -> Tensor:
        """Add up `tensor` over all processes, in place."""
        if self.world_size > 1:
            tdist.all_reduce(tensor)
        return tensor

    def sum_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Add up every gradient over the processes: one flat exchange, so that small models are not all latency."""
        if self.world_size == 1:
            return
        gradients = [p.grad for p in parameters if p.grad is not None]
        flat = self.sum(torch.cat([g.flatten() for g in gradients]))
        parts = torch.split(flat, [g.numel() for g in gradients])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view_as(gradient))

    @peer_errors()
    def largest(self, number: int) -> int:
        """Return the largest of a number over all processes, so that all processes take the same branch."""
        if self.world_size == 1:
            return number
        tensor = torch.tensor(number, device=self.device)
        tdist.all_reduce(tensor, tdist.ReduceOp.MAX)
        return int(tensor)

    def sum_numbers(self, numbers: Sequence[float]) -> list[float]:
        """Add up each number over all processes, in double precision."""
        if self.world_size == 1:
            return list(numbers)
        summed: list[float] = self.sum(torch.tensor(numbers, dtype=torch.float64, device=self.device)).tolist()
        return summed

    def number_of_main(self, number: float) -> float:
        """Return the main process's number, on every process: of clocks, so that all take the same branch."""
        return self.sum_numbers([number if self.is_main else 0.0])[0]

    @peer_errors()
    def from_main(self, text: str) -> str:
        """Broadcast `text` from rank 0."""
        texts = [text]
        if self.world_size > 1:
            tdist.broadcast_object_list(texts, src=0)
        return texts[0]

    @peer_errors()
    def barrier(self) -> None:
        if self.world_size > 1:
            tdist.barrier()


def leave_group() -> None:
    """Leave the group of the run's processes, if this one has joined. Call it after an error, too.

    Otherwise Python's exit can be aborted: gloo's threads still hold tensors then.
    """
    if tdist.is_initialized():
        tdist.destroy_process_group()
