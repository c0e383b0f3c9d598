"""The activations of the feed-forward, by `model.activation`: one line for each.

To add one, add its name to `ModelSection.activation` and its line here; tests fail until both are there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor


class Activation(NamedTuple):
    """An element-wise function, and its `activation_function` in GPT-2's config.json; None: GPT-2 has no such one."""

    function: Callable[[Tensor], Tensor]
    gpt2_name: str | None


ACTIVATIONS: Mapping[str, Activation] = {
    "relu": Activation(F.relu, "relu"),  # max(x, 0)
    # x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), as in GPT-2 (Hendrycks & Gimpel 2016, arXiv 1606.08415)
    "gelu": Activation(partial(F.gelu, approximate="tanh"), "gelu_new"),
}
