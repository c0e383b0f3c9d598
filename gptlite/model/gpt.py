"""The decoder-only GPT (Radford et al. 2019), with the variations that textbooks compare.

Shapes: B sequences, T tokens, C = n_embd, V = vocab_size.
"""

from __future__ import annotations

import math
from typing import assert_never

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from gptlite.config.schema import ModelSection
from gptlite.model.cache import CachePosition, KVCache
from gptlite.model.dropout import DropoutMasks, dropout
from gptlite.model.init import embedding_std, initialise, sinusoids
from gptlite.model.variants import BLOCKS


class GPT(nn.Module):
    """Token ids to the logits of the next token: x = tokens + positions; x = block(x) for each block; head(ln_f(x)).

    There is no train/eval mode: a forward pass drops out exactly where it is given `dropout_masks`, and nothing else in
    it is random.
    """

    def __init__(
        self,
        cfg: ModelSection,
        vocab_size: int,
        *,
        attention: str = "fused",
        rng: torch.Generator | None = None,
        recomputes: bool = False,
    ) -> None:
        """recomputes: the backward pass computes each block again, so that only its input is kept."""
        super().__init__()
        self.cfg, self.vocab_size, self.recomputes = cfg, vocab_size, recomputes
        self.token_embedding = nn.Embedding(vocab_size, cfg.n_embd)
        if cfg.position == "learned":
            self.position_embedding = nn.Embedding(cfg.block_size, cfg.n_embd)
        elif cfg.position == "sinusoidal":
            # As in the paper beside token embeddings times sqrt(C). A fresh token embedding without that factor is
            # small, and the table, whose root mean square is 1 / sqrt(2), takes its size, or it would drown it.
            scale = 1.0 if cfg.scale_embeddings else embedding_std(cfg) * math.sqrt(2)
            table = (scale * sinusoids(cfg.block_size, cfg.n_embd)).float()
            self.register_buffer("position_table", table, persistent=False)  # a constant: no parameter, not saved
        self.blocks = nn.ModuleList(BLOCKS[cfg.variant](cfg, attention) for _ in range(cfg.n_layer))
        # A post-LN block already ends with a norm.
        has_norm = cfg.norm == "pre" and cfg.variant != "no_norm"
        self.ln_f = nn.LayerNorm(cfg.n_embd, bias="norm" in cfg.biases) if has_norm else nn.Identity()
        self.head = nn.Linear(cfg.n_embd, vocab_size, bias=False)
        if cfg.tie_weights:
            self.head.weight = self.token_embedding.weight
        initialise(self, cfg, rng)

    def position_rows(self, positions: slice | Tensor) -> Tensor | None:
        """Return rows of the position table: (T, C), or (B, 1, C) of one position each; None without a table."""
        if self.cfg.position == "none":
            return None
        if self.cfg.position == "learned":
            table = self.position_embedding.weight
        elif self.cfg.position == "sinusoidal":
            table = self.get_buffer("position_table")
        else:
            assert_never(self.cfg.position)
        return table[positions] if isinstance(positions, slice) else table[positions, None]

    def hidden(self, idx: Tensor, *, dropout_masks: DropoutMasks | None = None, cache: KVCache | None = None) -> Tensor:
        """Return the states that the head maps to logits: (B, T) int64 -> (B, T, C). Arguments as `forward`."""
        T, block_size = idx.size(1), self.cfg.block_size
        position = CachePosition(slice(0, T), n_keys=T) if cache is None else cache.advance(T)
        assert position.n_keys <= block_size, f"{position.n_keys} positions in a model with block_size {block_size}"
        x = self.token_embedding(idx)  # (B, T, C)
        if self.cfg.scale_embeddings:
            x = x * math.sqrt(self.cfg.n_embd)
        position_embedding = self.position_rows(position.positions)
        if position_embedding is not None:
            x = x + position_embedding
        x = dropout(x, self.cfg.dropouts.embedding, dropout_masks)
        layer_caches = [None] * len(self.blocks) if cache is None else cache.layers(position)
        for block, layer_cache in zip(self.blocks, layer_caches, strict=True):
            if self.recomputes and layer_cache is None:
                x = recomputed(block, x, dropout_masks)
            else:
                x = block(x, dropout_masks=dropout_masks, cache=layer_cache)
        normed: Tensor = self.ln_f(x)
        return normed

    def forward(
        self, idx: Tensor, *, dropout_masks: DropoutMasks | None = None, cache: KVCache | None = None
    ) -> Tensor:
        """Return logits for the token after each position: (B, T) int64 -> (B, T, V).

        dropout_masks: where the masks come from; None: no dropout. cache: `idx` continues the tokens that it holds.
        """
        logits: Tensor = self.head(self.hidden(idx, dropout_masks=dropout_masks, cache=cache))
        return logits

    def n_parameters(self) -> int:
        """Count the trained parameters; tied weights count once."""
        return sum(p.numel() for p in self.parameters())


def recomputed(block: nn.Module, x: Tensor, dropout_masks: DropoutMasks | None) -> Tensor:
    """Apply a block, and again in the backward pass, with the same masks: (B, T, C) -> (B, T, C)."""
    drawn = 0 if dropout_masks is None else dropout_masks.drawn

    def apply(x: Tensor) -> Tensor:
        if dropout_masks is not None:
            dropout_masks.drawn = drawn
        found: Tensor = block(x, dropout_masks=dropout_masks)
        return found

    out: Tensor = checkpoint(apply, x, use_reentrant=False, preserve_rng_state=False)
    return out
