"""torch's optimizers without its compiler.

Their methods are wrapped to keep out of a compiler's way, and the wrapping loads that compiler: more than a second
before the first update. Nothing here is compiled but the model, so the methods are taken as they are inside.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch


class Optimizer(torch.optim.Optimizer):
    """The base of torch's and of our own optimizers."""

    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.Optimizer.zero_grad)


class AdamW(Optimizer, torch.optim.AdamW):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019, arXiv 1711.05101), as torch computes it."""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One update from the gradients."""
        assert closure is None, "the loss is computed outside"
        update: Any = inspect.unwrap(torch.optim.AdamW.step)
        update(self)
