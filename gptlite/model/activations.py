"""The table of activations: for each, all that the model, its file format and the memory estimate need to know.

To add one, add its name to `ModelSection.activation` and a row here; tests fail until both are there. torch is imported
by the functions, since memory is also estimated where torch is not loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import Tensor


def relu(x: Tensor) -> Tensor:
    """max(x, 0)"""
    return x.relu()


def gelu(x: Tensor) -> Tensor:
    """x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), as in GPT-2 (Hendrycks & Gimpel 2016, arXiv 1606.08415)."""
    from torch.nn.functional import gelu

    return gelu(x, approximate="tanh")


@dataclass(frozen=True)
class Activation:
    """An element-wise function of the feed-forward layers."""

    function: Callable[[Tensor], Tensor]
    gpt2_name: str | None  # `activation_function` in GPT-2's config.json; None: GPT-2 has no such function
    saves: Literal["input", "output"]  # what autograd keeps for the backward pass


ACTIVATIONS: Mapping[str, Activation] = {
    "relu": Activation(relu, gpt2_name="relu", saves="output"),
    "gelu": Activation(gelu, gpt2_name="gelu_new", saves="input"),
}
