"""The transformer block: attention and feed-forward, each added to the residual stream.

Shapes: B sequences, T tokens, C = n_embd.
"""

from __future__ import annotations

from typing import assert_never

from torch import Tensor, nn

from gptlite.config.schema import ModelSection
from gptlite.model.activations import ACTIVATIONS
from gptlite.model.attention import CausalSelfAttention
from gptlite.model.cache import LayerCache
from gptlite.model.dropout import DropoutMasks, dropout


class MLP(nn.Module):
    """The position-wise feed-forward: down(activation(up(x))), C -> 4C -> C."""

    def __init__(self, cfg: ModelSection) -> None:
        super().__init__()
        self.p = cfg.dropouts.residual
        self.activation = ACTIVATIONS[cfg.activation].function
        self.up = nn.Linear(cfg.n_embd, 4 * cfg.n_embd, bias="mlp" in cfg.biases)
        self.down = nn.Linear(4 * cfg.n_embd, cfg.n_embd, bias="mlp" in cfg.biases)

    def forward(self, x: Tensor, *, dropout_masks: DropoutMasks | None = None) -> Tensor:
        """(B, T, C) -> (B, T, C)."""
        return dropout(self.down(self.activation(self.up(x))), self.p, dropout_masks)


class Block(nn.Module):
    """One transformer block: attention mixes positions, the feed-forward works on each alone.

    pre-LN:  x = x + attn(ln_1(x));  x = x + mlp(ln_2(x))      (GPT-2)
    post-LN: x = ln_1(x + attn(x));  x = ln_2(x + mlp(x))      (Vaswani et al. 2017)
    """

    def __init__(self, cfg: ModelSection, attention: str) -> None:
        super().__init__()
        self.norm = cfg.norm
        self.ln_1 = nn.LayerNorm(cfg.n_embd, bias="norm" in cfg.biases)
        self.attn = CausalSelfAttention(cfg, attention)
        self.ln_2 = nn.LayerNorm(cfg.n_embd, bias="norm" in cfg.biases)
        self.mlp = MLP(cfg)

    def forward(
        self, x: Tensor, *, dropout_masks: DropoutMasks | None = None, cache: LayerCache | None = None
    ) -> Tensor:
        """(B, T, C) -> (B, T, C)."""
        if self.norm == "pre":
            x = x + self.attn(self.ln_1(x), dropout_masks=dropout_masks, cache=cache)
            x = x + self.mlp(self.ln_2(x), dropout_masks=dropout_masks)
        elif self.norm == "post":
            x = self.ln_1(x + self.attn(x, dropout_masks=dropout_masks, cache=cache))
            x = self.ln_2(x + self.mlp(x, dropout_masks=dropout_masks))
        else:
            assert_never(self.norm)
        return x
