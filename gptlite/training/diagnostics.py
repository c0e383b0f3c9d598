"""What an update shows beside its loss, when it is asked: norms by layer, how far it moved, learning rates."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils import get_total_norm

from gptlite.loggers.media import Histogram
from gptlite.model.gpt import GPT
from gptlite.training.optim.build import Optimizers

MOST_NUMBERS = 4096  # of each parameter, evenly spaced: enough for the norm of an update, and a copy of next to nothing


class UpdateRatio:
    """How far an update moves the parameters: the norm of the change over their norm before it.

    Of large parameters every so many-th number is looked at, so that no copy of the model is made.
    """

    def __init__(self, model: GPT) -> None:
        parameters = [p.detach().view(-1) for p in model.parameters()]
        self._seen = [flat[:: math.ceil(flat.numel() / MOST_NUMBERS)] for flat in parameters]  # views
        roots = [math.sqrt(flat.numel() / seen.numel()) for flat, seen in zip(parameters, self._seen, strict=True)]
        weights = [torch.full_like(seen, root) for seen, root in zip(self._seen, roots, strict=True)]
        self._weights = torch.cat(weights)  # a number that speaks for n counts sqrt(n) times in a norm

    def numbers(self) -> Tensor:
        """What is looked at, as it is now."""
        return torch.cat(self._seen) * self._weights

    def ratio(self, before: Tensor) -> float:
        """Right after an update; before: the numbers right before it."""
        return float((self.numbers() - before).norm() / before.norm())


@dataclass(frozen=True)
class Diagnostics:
    """What to look at in one update."""

    movement: UpdateRatio | None = None  # where a line of the log follows
    layers: bool = False
    gradients: bool = False


NO_DIAGNOSTICS = Diagnostics()


def layer_grad_norms(model: GPT) -> dict[str, float]:
    """Norm of the gradient of each layer, by the name of its metric; their squares add up to that of the whole.

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


def weight_histograms(model: GPT) -> dict[str, Histogram]:
    """Of each parameter, by the tag of its picture."""
    return {f"weights/{name}": histogram(p) for name, p in model.named_parameters()}


def gradient_histograms(model: GPT) -> dict[str, Histogram]:
    """Of the gradient of each parameter, by the tag of its picture."""
    return {f"gradients/{name}": histogram(p.grad) for name, p in model.named_parameters() if p.grad is not None}


def histogram(numbers: Tensor) -> Histogram:
    """Of a tensor of any shape, on any device."""
    return Histogram.of(numbers.detach().float().cpu().numpy())


def learning_rates(optimizers: Optimizers) -> dict[str, float]:
    """Of each optimizer, where there are several: {"lr/muon": 0.01, "lr/adamw": 0.005}."""
    if len(optimizers) == 1:
        return {}
    return {f"lr/{type(each).__name__.lower()}": each.param_groups[0]["lr"] for each in optimizers}
