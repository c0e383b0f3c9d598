"""Optional measurements of an update: gradient norms by layer, the update ratio, learning rates."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils import get_total_norm

from gptlite.model.gpt import GPT
from gptlite.training.optim.build import Optimizers

MAX_NUMBERS = 4096  # sampled of each parameter: enough for the norm of an update


class UpdateRatio:
    """The relative size of an update: the norm of the change of the parameters over their norm before.

    Large parameters are sampled at even spacing, over all columns alike, so that no copy of the model is made.
    """

    def __init__(self, model: GPT) -> None:
        parameters = list(model.parameters())
        self._sampled = [p.detach().view(-1)[:: spacing(p)] for p in parameters]  # views
        roots = [math.sqrt(p.numel() / part.numel()) for p, part in zip(parameters, self._sampled, strict=True)]
        weights = [torch.full_like(part, root) for part, root in zip(self._sampled, roots, strict=True)]
        self._weights = torch.cat(weights)  # each sampled element stands for n, so it counts sqrt(n) times in a norm

    def numbers(self) -> Tensor:
        """The sampled parameters as they are now, weighted: (n,)."""
        return torch.cat(self._sampled) * self._weights

    def ratio(self, before: Tensor) -> float:
        """Right after an update; before: `numbers` right before it."""
        return float((self.numbers() - before).norm() / before.norm())


def spacing(parameter: Tensor) -> int:
    """The least step to at most MAX_NUMBERS numbers that has no factor in common with the columns of a matrix."""
    step = math.ceil(parameter.numel() / MAX_NUMBERS)
    while math.gcd(step, parameter.size(-1)) > 1:
        step += 1
    return step


@dataclass(frozen=True)
class Diagnostics:
    """The measurements of one update besides its loss."""

    update_ratio: UpdateRatio | None = None
    layers: bool = False  # norms of the gradient by layer


NO_DIAGNOSTICS = Diagnostics()


def layer_grad_norms(model: GPT) -> dict[str, float]:
    """Norm of the gradient of each layer, by metric name; the squares add up to that of the whole gradient.

    Layers are embeddings, block_1 to block_n, final_norm and head; those without parameters of their own are left
    out. Weights that head and embedding share count as embeddings.
    """
    gradients: dict[str, list[Tensor]] = defaultdict(list)
    for name, p in model.named_parameters():
        assert p.grad is not None, "after the backward pass"
        module, number, *_ = name.split(".")
        layer = {"blocks": "block_", "ln_f": "final_norm", "head": "head"}.get(module, "embeddings")
        gradients[layer + str(int(number) + 1) if layer == "block_" else layer].append(p.grad)
    return {f"grad_norm/{layer}": get_total_norm(tensors).item() for layer, tensors in gradients.items()}


def learning_rates(optimizers: Optimizers) -> dict[str, float]:
    """The rate of each optimizer, where there are several: {"lr/muon": 0.01, "lr/adamw": 0.005}."""
    if len(optimizers) == 1:
        return {}
    return {f"lr/{type(each).__name__.lower()}": each.param_groups[0]["lr"] for each in optimizers}
