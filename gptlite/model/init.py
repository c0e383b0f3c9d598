"""The initial weights of the model, by `model.init`: drawn in the order of the parameters.

A branch is what a block adds to its input; `attn.proj` and `mlp.down` are the last matrices of the two branches.
"""

from __future__ import annotations

import math
from typing import assert_never

import torch
from torch import Tensor, nn

from gptlite.config.schema import ModelSection

STD = 0.02  # of GPT-2's weights


def embedding_std(cfg: ModelSection) -> float:
    """The standard deviation of a fresh token embedding."""
    return 1.0 if cfg.init == "torch" else STD


@torch.no_grad()
def initialise(model: nn.Module, cfg: ModelSection, rng: torch.Generator | None) -> None:
    """Set every parameter: norms to 1 and their biases to 0, the rest by `cfg.init`. rng: None is torch's global one.

    zero   Normal(0, 0.02), biases 0; the last matrix of each branch 0, so that every pre-LN block starts as the
           identity (Zhang et al. 2019, arXiv 1901.09321)
    gpt2   the same, but these matrices Normal(0, 0.02 / sqrt(2 n_layer)), so that the sum of the 2 n_layer branches
           does not grow with their number (Radford et al. 2019)
    torch  what torch's layers start with: embeddings Normal(0, 1), also where the head shares them; weights and biases
           of a linear layer uniform between +-1 / sqrt(number of its inputs)
    """
    for name, parameter in model.named_parameters():
        layer = model.get_submodule(name.rpartition(".")[0])
        if isinstance(layer, nn.LayerNorm):
            parameter.fill_(1.0 if name.endswith("weight") else 0.0)
        elif cfg.init == "torch":
            _draw_as_torch(parameter, layer, rng)
        elif name.endswith("bias"):
            parameter.zero_()
        elif not name.endswith(("attn.proj.weight", "mlp.down.weight")):
            parameter.normal_(0.0, STD, generator=rng)
        elif cfg.init == "gpt2":
            parameter.normal_(0.0, STD / math.sqrt(2 * cfg.n_layer), generator=rng)
        elif cfg.init == "zero":
            parameter.zero_()
        else:
            assert_never(cfg.init)


def _draw_as_torch(parameter: Tensor, layer: nn.Module, rng: torch.Generator | None) -> None:
    if isinstance(layer, nn.Linear):
        bound = 1.0 / math.sqrt(layer.in_features)
        parameter.uniform_(-bound, bound, generator=rng)
    else:
        parameter.normal_(0.0, 1.0, generator=rng)
