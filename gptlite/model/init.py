"""The initial weights of the model, by `model.init`, and the sinusoids that positions are or begin as.

Weights are drawn in the order of the parameters. A branch is what a block adds to its input; `attn.proj` and `mlp.down`
are the last matrices of the two branches.

Shapes: T positions, C = n_embd, nh = n_head, hs = head_size = C / nh.
"""

from __future__ import annotations

import math
from typing import assert_never

import torch
from torch import Tensor, nn

from gptlite.config.schema import ModelSection

STD = 0.02  # of GPT-2's weights
PREVIOUS_BLOCKS = 2  # the first ones, so that later heads can compare what these have copied
PREVIOUS_SCORE = 20.0  # attention score of the token that a head looks for, where vectors hold nothing but positions
LONGEST = 10000.0  # the slowest sinusoids turn once in about 2 pi times as many positions


def embedding_std(cfg: ModelSection) -> float:
    """Return the standard deviation of a fresh token embedding.

    Previous-token heads need positions of size 1, beside which tokens of 0.02 would be hardly seen. With 1 / sqrt(C)
    the first logits of a head that shares the embedding have a variance of 1.
    """
    if cfg.init == "torch":
        return 1.0
    return 1 / math.sqrt(cfg.n_embd) if cfg.has_previous_token_heads else STD


@torch.no_grad()
def initialise(model: nn.Module, cfg: ModelSection, rng: torch.Generator | None) -> None:
    """Set every parameter: norms to 1 and their biases to 0, the rest by `cfg.init`. rng: None is torch's global one.

    zero      Normal(0, 0.02), biases 0; the last matrix of each branch 0, so that every pre-LN block starts as the
              identity (Zhang et al. 2019, arXiv 1901.09321)
    previous  the same, but where positions are learned they start as sinusoids, the token embeddings as Normal(0,
              1 / sqrt(C)), and the heads of the first two blocks attend to the tokens just before: see
              `set_previous_token_heads`
    gpt2      as zero, but the last matrices Normal(0, 0.02 / sqrt(2 n_layer)), so that the sum of the 2 n_layer
              branches does not grow with their number (Radford et al. 2019)
    torch     what torch's layers start with: embeddings Normal(0, 1), also where the head shares them; weights and
              biases of a linear layer uniform between +-1 / sqrt(number of its inputs)
    """
    for name, parameter in model.named_parameters():
        layer = model.get_submodule(name.rpartition(".")[0])
        if isinstance(layer, nn.LayerNorm):
            parameter.fill_(1.0 if name.endswith("weight") else 0.0)
        elif cfg.init == "torch" and isinstance(layer, nn.Linear):
            bound = 1.0 / math.sqrt(layer.in_features)
            parameter.uniform_(-bound, bound, generator=rng)
        elif cfg.init == "torch" or name == "token_embedding.weight":
            parameter.normal_(0.0, embedding_std(cfg), generator=rng)
        elif name.endswith("bias"):
            parameter.zero_()
        elif not name.endswith(("attn.proj.weight", "mlp.down.weight")):
            parameter.normal_(0.0, STD, generator=rng)
        elif cfg.init == "gpt2":
            parameter.normal_(0.0, STD / math.sqrt(2 * cfg.n_layer), generator=rng)
        elif cfg.init == "zero" or cfg.init == "previous":
            parameter.zero_()
        else:
            assert_never(cfg.init)
    if cfg.has_previous_token_heads:
        set_previous_token_heads(model, cfg)


def set_previous_token_heads(model: nn.Module, cfg: ModelSection) -> None:
    """Let head h of the first two blocks attend to the token h + 1 positions before.

    A head that sees the previous token is what an induction head needs (Olsson et al. 2022, arXiv 2209.11895): it
    looks for earlier places where the token before was the present one, and copies what followed. Found by training
    alone, from random positions, such heads come late.

    In sinusoids a step back is a rotation, so the query of a position can be the key of an earlier one.
    """
    # Every other pair of columns is negated: the mean is about 0, and LayerNorm changes the length alone.
    sign = 1 - 2 * (torch.arange(cfg.n_embd) // 2 % 2)
    table = math.sqrt(2) * sign * sinusoids(cfg.block_size, cfg.n_embd)  # of root mean square 1
    model.get_parameter("position_embedding.weight").copy_(table)
    key = read_position(cfg)
    n_rows = len(key)  # the others of a head keep what was drawn: rows of zeros, or equal ones, would never differ
    for layer in range(min(PREVIOUS_BLOCKS, cfg.n_layer)):
        qkv = model.get_parameter(f"blocks.{layer}.attn.qkv.weight")
        queries, keys, _ = qkv.view(3, cfg.n_head, cfg.head_size, cfg.n_embd)  # each (nh, hs, C)
        for head in range(cfg.n_head):
            keys[head, :n_rows] = key
            queries[head, :n_rows] = key @ rotation(-(head + 1), cfg.n_embd)


def read_position(cfg: ModelSection) -> Tensor:
    """Return a key of a position: pairs of columns, none twice, of wavelengths from 6 to 600 positions: (<= hs, C)."""
    last = max(0, cfg.n_embd // 4 - 1)
    pairs = torch.unique_consecutive(torch.linspace(0, last, cfg.head_size // 2).round().long())
    n_pairs = len(pairs)
    rows = torch.zeros(2 * n_pairs, cfg.n_embd)
    if n_pairs:
        row = torch.arange(n_pairs)
        scale = 1 / math.sqrt(cfg.head_size) if cfg.scale_attention else 1.0
        # In a normalised vector sin^2 + cos^2 of a pair is 2.
        size = math.sqrt(PREVIOUS_SCORE / (2 * n_pairs * scale))
        rows[2 * row, 2 * pairs] = rows[2 * row + 1, 2 * pairs + 1] = size
    return rows


def sinusoids(n_positions: int, n_embd: int) -> Tensor:
    """Return the position table of Vaswani et al. 2017 (arXiv 1706.03762), section 3.5: (T, C) fp64.

    Columns 2i and 2i + 1 are sin and cos of position / 10000^(2i / C).
    """
    position = torch.arange(n_positions, dtype=torch.float64)[:, None]
    column = torch.arange(n_embd)
    angle = position * frequencies(n_embd)[column // 2]
    return torch.where(column % 2 == 0, angle.sin(), angle.cos())


def frequencies(n_embd: int) -> Tensor:
    """Return radians per position of each pair of columns: (ceil(C / 2),) fp64. Of an odd C the last one is alone."""
    pair = torch.arange((n_embd + 1) // 2, dtype=torch.float64)
    return LONGEST ** (-2 * pair / n_embd)


def rotation(steps: int, n_embd: int) -> Tensor:
    """Return the matrix that moves every row of `sinusoids` so many positions on: (C, C) fp32.

    rotation(k) @ sinusoids[p] = sinusoids[p + k], as Vaswani et al. 2017 note: sin(a + b) = sin a cos b + cos a sin b.
    Of an odd C the last column, which is alone, is left as it is.
    """
    matrix = torch.eye(n_embd)
    angle = steps * frequencies(n_embd)[: n_embd // 2]
    sin = 2 * torch.arange(n_embd // 2)
    cos = sin + 1
    matrix[sin, sin] = matrix[cos, cos] = angle.cos().float()
    matrix[sin, cos] = angle.sin().float()
    matrix[cos, sin] = -angle.sin().float()
    return matrix
