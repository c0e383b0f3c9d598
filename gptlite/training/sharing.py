"""Sharing a run's gradients, or all of its parameters, among its processes: torch's engines around the objective.

With DistributedDataParallel each process holds the whole model. With fully_shard it holds a part of every parameter, of
its gradient and of its optimizer's state, and a block is gathered while it is computed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from gptlite.compute.distributed import part_like, peer_errors
from gptlite.training.objective import Objective
from gptlite.training.trainer import Trainer


def is_shared(objective: nn.Module) -> bool:
    """Return whether the gradients become the mean over the processes. `fully_shard` changes the class of a module."""
    return type(objective) is not Objective


def exchanging(objective: nn.Module, *, is_due: bool) -> AbstractContextManager[None]:
    """Return the context of a backward pass, whose gradients are added up over the processes if that `is_due`.

    Divided gradients always are: to wait, each process would have to hold all of them.
    """
    waits = isinstance(objective, DistributedDataParallel) and not is_due
    found: AbstractContextManager[None] = objective.no_sync() if waits else nullcontext()  # type: ignore[operator]
    return found


def replicated(objective: nn.Module) -> DistributedDataParallel:
    """Return the objective whose gradients are added up while the backward pass goes on."""
    # By default the first bucket has 1 MB, and a small model two exchanges.
    return DistributedDataParallel(objective, bucket_cap_mb=25, gradient_as_bucket_view=True)


def divide(trainer: Trainer) -> None:
    """Divide the parameters and the state of the optimizers among the processes, in place."""
    from torch.distributed.device_mesh import init_device_mesh  # one process imports none of this
    from torch.distributed.fsdp import fully_shard

    names: dict[Tensor, str] = {p: name for name, p in trainer.model.named_parameters()}
    mesh = init_device_mesh(trainer.compute.device.type, (trainer.dist.world_size,))
    modules: list[Any] = [*trainer.model.blocks, trainer.objective]
    for module in modules:
        fully_shard(module, mesh=mesh).set_force_sum_reduction_for_comms(True)  # gloo has no mean
    parts = dict(trainer.model.named_parameters())
    for optimizer in trainer.optimizers:
        for group in optimizer.param_groups:
            group["params"] = [parts[names[p]] for p in group["params"]]
        states = {parts[names[p]]: state for p, state in optimizer.state.items()}
        optimizer.state.clear()
        for part, state in states.items():  # a number, such as the count of updates, is not divided
            optimizer.state[part] = {key: part_like(each, part) if each.ndim else each for key, each in state.items()}


@contextmanager
def gathered(objective: nn.Module) -> Iterator[None]:
    """Hold the whole model in each process, which can then compute with it alone."""
    divided: list[Any] = [module for module in objective.modules() if hasattr(module, "unshard")]
    with peer_errors():
        for module in divided:
            module.unshard()
            module.set_reshard_after_forward(False, recurse=False)
    try:
        yield
    finally:
        for module in divided:
            module.set_reshard_after_forward(module is not objective, recurse=False)  # torch's own choice
        if divided:
            # Divides the model again, and forgets the forward passes. torch gathers blocks ahead in their order, and
            # one process may have made more of them than another.
            divided[0].reset_iter_state()
