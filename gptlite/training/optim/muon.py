"""Muon: momentum whose update matrix is orthogonalised (Jordan et al. 2024, kellerjordan.github.io/posts/muon).

torch.optim.Muon always iterates in bf16, matrix by matrix. This one iterates in a given type and processes all matrices
of one shape together, which makes it affordable on a CPU.
"""

from __future__ import annotations

import inspect
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from gptlite.compute.distributed import part_like, whole

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
ITERATIONS = 5


def orthogonalise(matrices: Tensor, dtype: torch.dtype) -> Tensor:
    """Push every singular value of each matrix to about 1: (n, rows, cols) with rows <= cols -> the same shape.

    With X = U S V^T, each iteration X <- (a I + b A + c A^2) X, A = X X^T, maps S by an odd polynomial that is
    steepest at zero, so that five of them bring (0, 1] into about (0.7, 1.2).
    """
    X = matrices.to(dtype)
    X = X / X.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)
    # A wide matrix takes fewer operations by its Gram matrix, which needs the digits of fp32.
    by_gram = X.size(-1) > 1.5 * X.size(-2) and X.element_size() >= 4
    X = gram_factor(X @ X.mT) @ X if by_gram else newton_schulz(X)
    return X.to(matrices.dtype)


def newton_schulz(X: Tensor) -> Tensor:
    """Run the iteration of `orthogonalise` as written: (n, rows, cols) -> the same shape."""
    a, b, c = NEWTON_SCHULZ
    for _ in range(ITERATIONS):
        A = X @ X.mT
        polynomial = torch.baddbmm(A, A, A, beta=b, alpha=c)
        X = torch.baddbmm(X, polynomial, X, beta=a)
    return X


def gram_factor(A: Tensor) -> Tensor:
    """Q with Q X = newton_schulz(X), from A = X X^T alone: (n, rows, rows) -> the same shape.

    Every factor P of X is a polynomial in A, so they commute, and X <- P X means A <- P A P: a wide X is used only at
    the end. A holds squared singular values, for which bf16 has too few digits.
    """
    a, b, c = NEWTON_SCHULZ
    identity = torch.eye(A.size(-1), dtype=A.dtype, device=A.device)
    Q: Tensor | None = None
    for i in range(ITERATIONS):
        P = torch.baddbmm(A, A, A, beta=b, alpha=c) + a * identity
        Q = P if Q is None else P @ Q
        if i + 1 < ITERATIONS:
            A = P @ A @ P
    assert Q is not None
    return Q


class Uncompiled(torch.optim.Optimizer):
    """torch's base class without its compiler hooks.

    torch wraps the methods of optimizers so that its compiler skips them, and the wrapping loads the compiler: more
    than a second before the first update. We compile nothing but the model, so we take the methods inside.
    """

    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.Optimizer.zero_grad)


class Muon(Uncompiled):
    """Nesterov momentum, orthogonalised, with decoupled weight decay.

    The update is scaled by 0.2 sqrt(max(rows, cols)), which gives it the root mean square of a typical AdamW
    update (Liu et al. 2025, arXiv 2502.16982), so that their learning rates are comparable.

    All groups have one learning rate and one weight decay. A group's `parts` splits its matrices into that many equal
    blocks of rows, which are orthogonalised separately: Q, K and V are stored as one matrix but are three maps.
    """

    def __init__(
        self,
        params: Iterable[dict[str, Any]],
        *,
        lr: float,
        momentum: float,
        weight_decay: float,
        dtype: torch.dtype | None = None,
    ) -> None:
        self.dtype = dtype  # of the iteration; None: that of the parameter
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "parts": 1})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        assert closure is None, "Muon does not re-evaluate the loss"
        by_shape: dict[torch.Size, list[tuple[Tensor, Tensor]]] = defaultdict(list)
        for group in self.param_groups:
            parameters = [p for p in group["params"] if p.grad is not None]
            for parameter, update in zip(parameters, self._nesterov(parameters, group["momentum"]), strict=True):
                for matrix in whole(update).chunk(group["parts"]):
                    by_shape[torch.Size(sorted(matrix.shape))].append((parameter, matrix))
        lr, weight_decay = self.param_groups[0]["lr"], self.param_groups[0]["weight_decay"]
        for shape, pairs in by_shape.items():
            wide = [matrix if matrix.shape == shape else matrix.mT for _, matrix in pairs]
            directions = orthogonalise(torch.stack(wide), self.dtype or wide[0].dtype)
            of_parameter: dict[Tensor, list[Tensor]] = defaultdict(list)
            for (parameter, matrix), direction in zip(pairs, directions, strict=True):
                of_parameter[parameter].append(direction if matrix.shape == shape else direction.mT)
            targets = list(of_parameter)
            moves = [part_like(torch.cat(parts), parameter) for parameter, parts in of_parameter.items()]
            torch._foreach_mul_(targets, 1 - lr * weight_decay)
            torch._foreach_add_(targets, moves, alpha=-lr * 0.2 * math.sqrt(max(shape)))

    def _nesterov(self, parameters: list[Tensor], momentum: float) -> Sequence[Tensor]:
        """Return the gradients moved towards their running means, which are kept as state."""
        gradients = [p.grad for p in parameters if p.grad is not None]
        for p in parameters:
            if "momentum" not in self.state[p]:
                self.state[p]["momentum"] = torch.zeros_like(p)
        means = [self.state[p]["momentum"] for p in parameters]
        torch._foreach_lerp_(means, gradients, 1 - momentum)
        return torch._foreach_lerp(gradients, means, momentum)
