"""Sinusoids: vectors of positions in which a step to another position is a rotation.

Shapes: T positions, C = n_embd.
"""

from __future__ import annotations

import torch
from torch import Tensor

LONGEST = 10000.0  # the slowest columns turn once in about 2 pi times as many positions


def sinusoids(n_positions: int, n_embd: int) -> Tensor:
    """The position table of Vaswani et al. 2017 (arXiv 1706.03762), section 3.5: (T, C) fp64.

    Columns 2i and 2i + 1 are sin and cos of position / 10000^(2i / C).
    """
    position = torch.arange(n_positions, dtype=torch.float64)[:, None]
    column = torch.arange(n_embd)
    angle = position * frequencies(n_embd)[column // 2]
    return torch.where(column % 2 == 0, angle.sin(), angle.cos())


def frequencies(n_embd: int) -> Tensor:
    """Radians per position of each pair of columns: (ceil(C / 2),) fp64. Of an odd C the last column is alone."""
    pair = torch.arange((n_embd + 1) // 2, dtype=torch.float64)
    return LONGEST ** (-2 * pair / n_embd)


def rotation(steps: int, n_embd: int) -> Tensor:
    """The matrix that moves every row of `sinusoids` so many positions on: (C, C) fp32.

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
