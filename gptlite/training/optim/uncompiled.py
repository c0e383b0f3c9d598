"""torch's optimizers without their compiler hooks.

torch wraps their methods so that its compiler skips them, and the wrapping loads the compiler: more than a second
before the first update. We compile nothing but the model, so we take the methods inside.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch


class Optimizer(torch.optim.Optimizer):
    """The base class of AdamW and Muon."""

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
