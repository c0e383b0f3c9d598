"""Blocks without one of their parts, by `model.variant`, to see what the part is for. All are pre-LN.

Shapes: B sequences, T tokens, C = n_embd.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from gptlite.config.schema import ModelSection
from gptlite.model.attention import AttentionOptions
from gptlite.model.block import Block
from gptlite.model.cache import LayerCache
from gptlite.model.dropout import DropoutMasks


class BlockWithoutResidual(Block):
    """x = attn(ln_1(x));  x = mlp(ln_2(x)): gradients reach the first block only through every layer above it."""

    def forward(
        self, x: Tensor, *, dropout_masks: DropoutMasks | None = None, cache: LayerCache | None = None
    ) -> Tensor:
        """(B, T, C) -> (B, T, C)."""
        x = self.attn(self.ln_1(x), dropout_masks=dropout_masks, cache=cache)
        out: Tensor = self.mlp(self.ln_2(x), dropout_masks=dropout_masks)
        return out


class BlockWithoutFeedForward(Block):
    """x = x + attn(ln_1(x)): without the activation, attention only averages values."""

    def __init__(self, cfg: ModelSection, attention: str) -> None:
        super().__init__(cfg, attention)
        del self.ln_2, self.mlp

    def forward(
        self, x: Tensor, *, dropout_masks: DropoutMasks | None = None, cache: LayerCache | None = None
    ) -> Tensor:
        """(B, T, C) -> (B, T, C)."""
        out: Tensor = x + self.attn(self.ln_1(x), dropout_masks=dropout_masks, cache=cache)
        return out


class BlockWithoutNorm(Block):
    """x = x + attn(x);  x = x + mlp(x): the inputs of every layer grow with the residual stream."""

    def __init__(self, cfg: ModelSection, attention: str) -> None:
        super().__init__(cfg, attention)
        self.ln_1 = self.ln_2 = nn.Identity()  # type: ignore[assignment]


class BlockWithoutMask(Block):
    """Every token attends to every other, also to those that it has to predict: the model sees the answer."""

    def __init__(self, cfg: ModelSection, attention: str) -> None:
        super().__init__(cfg, attention)
        attend = self.attn.attend

        def attend_to_all(q: Tensor, k: Tensor, v: Tensor, options: AttentionOptions) -> Tensor:
            everything = torch.ones(q.size(-2), k.size(-2), dtype=torch.bool, device=q.device)
            return attend(q, k, v, dataclasses.replace(options, attention_mask=everything))

        self.attn.attend = attend_to_all


BLOCKS: Mapping[str | None, type[Block]] = {
    None: Block,
    "no_residual": BlockWithoutResidual,
    "no_feed_forward": BlockWithoutFeedForward,
    "no_norm": BlockWithoutNorm,
    "no_mask": BlockWithoutMask,
}
