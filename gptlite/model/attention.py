"""Masked multi-head attention: the plain equation, and the fast paths that must equal it.

Shapes: B sequences, T new tokens, S = tokens seen so far including the new ones (S = T without a cache),
C = n_embd, nh = n_head, hs = head_size = C / nh. The T queries are always the last T of the S positions.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gptlite.config.schema import ModelSection
from gptlite.model.cache import LayerCache
from gptlite.model.dropout import Masks, dropout


def causal_mask(n_queries: int, n_keys: int, device: torch.device) -> Tensor:
    """True where query t may look at key s, that is where s <= t: (T, S) bool."""
    return torch.ones(n_queries, n_keys, dtype=torch.bool, device=device).tril(n_keys - n_queries)


def plain_attention(
    q: Tensor, k: Tensor, v: Tensor, *, scale: float, p: float = 0.0, masks: Masks | None = None
) -> Tensor:
    """softmax(Q K^T * scale, -inf above the diagonal) V: (B, nh, T, hs), 2 x (B, nh, S, hs) -> (B, nh, T, hs).

    The equation of Vaswani et al. 2017 (arXiv 1706.03762), section 3.2.1; every other path is tested against it.
    """
    scores = q @ k.transpose(-2, -1) * scale  # (B, nh, T, S)
    scores = scores.masked_fill(~causal_mask(q.size(-2), k.size(-2), q.device), -math.inf)
    weights = torch.softmax(scores, dim=-1)
    weights = dropout(weights, p, masks).to(v.dtype)
    return weights @ v


def batched_attention(
    q: Tensor, k: Tensor, v: Tensor, *, scale: float, p: float = 0.0, masks: Masks | None = None
) -> Tensor:
    """The same function as two batched matrix products over all B x nh heads.

    Scaling and masking happen inside the first product, so the scores are written once: for short sequences on a CPU
    that beats the fused kernel, whose blocks are then too small to fill the machine.
    """
    blocked = torch.zeros(q.size(-2), k.size(-2), dtype=q.dtype, device=q.device)
    blocked.masked_fill_(~causal_mask(q.size(-2), k.size(-2), q.device), -math.inf)
    queries, keys, values = q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1)  # (B nh, T or S, hs)
    scores = torch.baddbmm(blocked, queries, keys.mT, alpha=scale)  # (B nh, T, S)
    weights = dropout(torch.softmax(scores, dim=-1), p, masks)
    return torch.bmm(weights.to(values.dtype), values).view(q.shape)


def fused_attention(
    q: Tensor, k: Tensor, v: Tensor, *, scale: float, p: float = 0.0, masks: Masks | None = None
) -> Tensor:
    """The same function through torch's kernel, which never writes the (T, S) weights to memory.

    The kernel draws dropout masks from global state, so with dropout the batched products are used.
    """
    if masks is not None and p > 0.0:
        return batched_attention(q, k, v, scale=scale, p=p, masks=masks)
    n_queries, n_keys = q.size(-2), k.size(-2)
    if n_queries == 1:
        return F.scaled_dot_product_attention(q, k, v, scale=scale)
    if n_queries == n_keys:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)
    # torch's is_causal aligns the diagonal with the first key; ours belongs to the last.
    mask = causal_mask(n_queries, n_keys, q.device)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)


ATTENTION = {"plain": plain_attention, "batched": batched_attention, "fused": fused_attention}


class CausalSelfAttention(nn.Module):
    """All heads at once: project to Q, K, V, attend, concatenate the heads, project back."""

    def __init__(self, cfg: ModelSection, attention: str) -> None:
        super().__init__()
        self.n_head, self.head_size = cfg.n_head, cfg.head_size
        self.p = cfg.dropout
        self.scale = 1.0 / math.sqrt(cfg.head_size) if cfg.scale_attention else 1.0
        self.attend = ATTENTION[attention]
        self.qkv = nn.Linear(cfg.n_embd, 3 * cfg.n_embd, bias=cfg.bias)
        self.proj = nn.Linear(cfg.n_embd, cfg.n_embd, bias=cfg.bias)

    def forward(self, x: Tensor, *, masks: Masks | None = None, cache: LayerCache | None = None) -> Tensor:
        """(B, T, C) -> (B, T, C); with a cache, x continues what is in it."""
        B, T, C = x.shape
        qkv = self.qkv(x).view(B, T, 3, self.n_head, self.head_size).permute(2, 0, 3, 1, 4)
        q, k, v = qkv  # each (B, nh, T, hs)
        if cache is not None:
            k, v = cache.extend(qkv[1:])
        if cache is not None and cache.place.seen is not None:
            heads = F.scaled_dot_product_attention(q, k, v, attn_mask=cache.place.seen, scale=self.scale)
        else:
            heads = self.attend(q, k, v, scale=self.scale, p=self.p, masks=masks)
        concatenated = heads.transpose(1, 2).reshape(B, T, C)
        return dropout(self.proj(concatenated), self.p, masks)
