"""The decoder-only GPT (Radford et al. 2019), with the variations that textbooks compare.

Shapes: B sequences, T tokens, C = n_embd, V = vocab_size.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gptlite.config.schema import ModelSection
from gptlite.model.attention import CausalSelfAttention
from gptlite.model.cache import CachePosition, KVCache, LayerCache
from gptlite.model.dropout import DropoutMasks, dropout

INIT_STD = 0.02


class MLP(nn.Module):
    """The position-wise feed-forward: C -> 4C -> C."""

    def __init__(self, cfg: ModelSection) -> None:
        super().__init__()
        self.p = cfg.dropout
        self.activation = cfg.activation
        self.up = nn.Linear(cfg.n_embd, 4 * cfg.n_embd, bias=cfg.bias)
        self.down = nn.Linear(4 * cfg.n_embd, cfg.n_embd, bias=cfg.bias)

    def forward(self, x: Tensor, *, dropout_masks: DropoutMasks | None = None) -> Tensor:
        """(B, T, C) -> (B, T, C)."""
        h = self.up(x)
        h = F.relu(h) if self.activation == "relu" else F.gelu(h, approximate="tanh")
        return dropout(self.down(h), self.p, dropout_masks)


class Block(nn.Module):
    """One transformer block: attention mixes positions, the feed-forward works on each alone.

    pre-LN:  x = x + attn(ln_1(x));  x = x + mlp(ln_2(x))      (what GPT-2 does)
    post-LN: x = ln_1(x + attn(x));  x = ln_2(x + mlp(x))      (Vaswani et al. 2017)
    """

    def __init__(self, cfg: ModelSection, attention: str) -> None:
        super().__init__()
        self.norm_first = cfg.norm == "pre"
        self.ln_1 = nn.LayerNorm(cfg.n_embd, bias=cfg.bias)
        self.attn = CausalSelfAttention(cfg, attention)
        self.ln_2 = nn.LayerNorm(cfg.n_embd, bias=cfg.bias)
        self.mlp = MLP(cfg)

    def forward(
        self, x: Tensor, *, dropout_masks: DropoutMasks | None = None, cache: LayerCache | None = None
    ) -> Tensor:
        """(B, T, C) -> (B, T, C)."""
        if self.norm_first:
            x = x + self.attn(self.ln_1(x), dropout_masks=dropout_masks, cache=cache)
            x = x + self.mlp(self.ln_2(x), dropout_masks=dropout_masks)
        else:
            x = self.ln_1(x + self.attn(x, dropout_masks=dropout_masks, cache=cache))
            x = self.ln_2(x + self.mlp(x, dropout_masks=dropout_masks))
        return x


def sinusoids(block_size: int, n_embd: int) -> Tensor:
    """The fixed position table of Vaswani et al. 2017, section 3.5: (block_size, C).

    sin on the even columns and cos on the odd ones, of position / 10000^(2i / C); scaled so that its root mean
    square is that of a fresh token embedding, as theirs was: unscaled it would drown the tokens.
    """
    position = torch.arange(block_size, dtype=torch.float64)[:, None]
    column = torch.arange(n_embd)
    angle = position / 10000.0 ** (2 * (column // 2) / n_embd)
    table = torch.where(column % 2 == 0, angle.sin(), angle.cos())
    return (INIT_STD * math.sqrt(2) * table).float()


class GPT(nn.Module):
    """Token ids to the logits of the next token.

    Nothing random happens inside without `masks`, so there is no train/eval mode: a forward pass that is given them
    drops, one without does not.
    """

    def __init__(
        self, cfg: ModelSection, vocab_size: int, *, attention: str = "fused", rng: torch.Generator | None = None
    ) -> None:
        super().__init__()
        self.cfg, self.vocab_size = cfg, vocab_size
        self.token_embedding = nn.Embedding(vocab_size, cfg.n_embd)
        if cfg.position == "learned":
            self.position_embedding = nn.Embedding(cfg.block_size, cfg.n_embd)
        elif cfg.position == "sinusoidal":
            # A constant of the configuration: not a parameter, not saved.
            self.register_buffer("position_table", sinusoids(cfg.block_size, cfg.n_embd), persistent=False)
        self.blocks = nn.ModuleList(Block(cfg, attention) for _ in range(cfg.n_layer))
        # Post-LN blocks end with a norm of their own.
        self.ln_f = nn.LayerNorm(cfg.n_embd, bias=cfg.bias) if cfg.norm == "pre" else nn.Identity()
        self.head = nn.Linear(cfg.n_embd, vocab_size, bias=False)
        if cfg.tie_weights:
            self.head.weight = self.token_embedding.weight
        self.initialise(rng)

    @torch.no_grad()
    def initialise(self, rng: torch.Generator | None) -> None:
        """Normal(0, 0.02) weights, zero biases, unit norms; the order of parameters decides the draws."""
        for name, parameter in self.named_parameters():
            if name.endswith(("attn.proj.weight", "mlp.down.weight")):
                # Each branch ends in zeros, so that every block begins as the identity and depth costs nothing at
                # the start (Zhang et al. 2019, arXiv 1901.09321). GPT-2's 0.02 / sqrt(2 n_layer) learned slower.
                parameter.zero_()
            elif parameter.ndim == 2:
                parameter.normal_(0.0, INIT_STD, generator=rng)
            else:
                parameter.fill_(1.0 if name.endswith("weight") else 0.0)

    def positions(self, which: slice | Tensor) -> Tensor | None:
        """These rows of the position table: (T, C), or (B, 1, C) for one position per row; None where there is none."""
        if self.cfg.position == "none":
            return None
        learned = self.cfg.position == "learned"
        table = self.position_embedding.weight if learned else self.get_buffer("position_table")
        return table[which] if isinstance(which, slice) else table[which, None]

    def hidden(self, idx: Tensor, *, dropout_masks: DropoutMasks | None = None, cache: KVCache | None = None) -> Tensor:
        """What the head turns into logits: (B, T) int64 -> (B, T, C); see `forward`."""
        place = cache.advance(idx.size(1)) if cache is not None else CachePosition(slice(0, idx.size(1)), idx.size(1))
        n_keys, block_size = place.n_keys, self.cfg.block_size
        assert n_keys <= block_size, f"{n_keys} positions in a model with block_size {block_size}"
        x = self.token_embedding(idx)  # (B, T, C)
        position = self.positions(place.positions)
        if position is not None:
            x = x + position
        x = dropout(x, self.cfg.dropout, dropout_masks)
        layers = cache.layers(place) if cache is not None else [None] * len(self.blocks)
        for block, layer in zip(self.blocks, layers, strict=True):
            x = block(x, dropout_masks=dropout_masks, cache=layer)
        normed: Tensor = self.ln_f(x)
        return normed

    def forward(
        self, idx: Tensor, *, dropout_masks: DropoutMasks | None = None, cache: KVCache | None = None
    ) -> Tensor:
        """Logits for the token after each position: (B, T) int64 -> (B, T, V).

        masks: draws the dropout masks; without them nothing is dropped. cache: idx continues what it has read.
        """
        logits: Tensor = self.head(self.hidden(idx, dropout_masks=dropout_masks, cache=cache))
        return logits

    def n_parameters(self) -> int:
        """Trained numbers, tied weights counted once."""
        return sum(p.numel() for p in self.parameters())


def nll_sum(logits: Tensor, targets: Tensor) -> Tensor:
    """Sum of -log p(target) over all scored targets: (B, T, V), (B, T) -> scalar, in nats, at least fp32.

    Targets of -100, cross_entropy's ignore_index, are left out.
    """
    logits = logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")
