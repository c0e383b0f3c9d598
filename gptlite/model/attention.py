"""Masked multi-head attention: the plain equation, and the fast paths that must equal it.

Shapes: B sequences, T new tokens, S = tokens seen so far including the new ones (S = T without a cache),
C = n_embd, nh = n_head, hs = head_size = C / nh. The T queries are always the last T of the S positions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gptlite.config.schema import ModelSection
from gptlite.model.cache import LayerCache
from gptlite.model.dropout import DropoutMasks, dropout

# True where a query may look at a key, of a shape that broadcasts to (B, nh, T, S); None: at its own and before.
AttentionMask: TypeAlias = Tensor | None


def causal_mask(n_queries: int, n_keys: int, device: torch.device) -> Tensor:
    """True where query t may look at key s, that is where s <= t: (T, S) bool."""
    return torch.ones(n_queries, n_keys, dtype=torch.bool, device=device).tril(n_keys - n_queries)


@dataclass(frozen=True)
class AttentionSteps:
    """Every step of the attention of Vaswani et al. 2017 (arXiv 1706.03762), section 3.2.1."""

    scores: Tensor  # Q K^T * scale: (B, nh, T, S)
    masked: Tensor  # -inf where a query may not look
    weights: Tensor  # softmax over the keys: rows of sum 1
    heads: Tensor  # weights V: (B, nh, T, hs)


def reference_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float,
    p: float = 0.0,
    dropout_masks: DropoutMasks | None = None,
    attention_mask: AttentionMask = None,
) -> AttentionSteps:
    """softmax(Q K^T * scale, -inf where a query may not look) V, step by step; dropout falls on the weights."""
    attention_mask = causal_mask(q.size(-2), k.size(-2), q.device) if attention_mask is None else attention_mask
    scores = q @ k.transpose(-2, -1) * scale
    masked = scores.masked_fill(~attention_mask, -math.inf)
    weights = torch.softmax(masked, dim=-1)
    return AttentionSteps(scores, masked, weights, dropout(weights, p, dropout_masks).to(v.dtype) @ v)


def plain_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float,
    p: float = 0.0,
    dropout_masks: DropoutMasks | None = None,
    attention_mask: AttentionMask = None,
) -> Tensor:
    """The equation as it is written: (B, nh, T, hs), 2 x (B, nh, S, hs) -> (B, nh, T, hs).

    Every other path is tested against it.
    """
    return reference_attention(
        q, k, v, scale=scale, p=p, dropout_masks=dropout_masks, attention_mask=attention_mask
    ).heads


def batched_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float,
    p: float = 0.0,
    dropout_masks: DropoutMasks | None = None,
    attention_mask: AttentionMask = None,
) -> Tensor:
    """The same function as two batched matrix products over all B x nh heads.

    Scaling and masking happen inside the first product, so the scores are written once: for short sequences on a CPU
    that beats the fused kernel, whose blocks are then too small to fill the machine.
    """
    attention_mask = causal_mask(q.size(-2), k.size(-2), q.device) if attention_mask is None else attention_mask
    blocked = torch.zeros(attention_mask.shape, dtype=q.dtype, device=q.device).masked_fill_(~attention_mask, -math.inf)
    if blocked.dim() > 2:
        blocked = blocked.expand(*q.shape[:-1], k.size(-2)).flatten(0, 1)  # (B nh, T, S)
    queries, keys, values = q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1)  # (B nh, T or S, hs)
    scores = torch.baddbmm(blocked, queries, keys.mT, alpha=scale)  # (B nh, T, S)
    weights = dropout(torch.softmax(scores, dim=-1), p, dropout_masks)
    return torch.bmm(weights.to(values.dtype), values).view(q.shape)


def fused_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float,
    p: float = 0.0,
    dropout_masks: DropoutMasks | None = None,
    attention_mask: AttentionMask = None,
) -> Tensor:
    """The same function through torch's kernel, which never writes the (T, S) weights to memory.

    The kernel draws dropout masks from global state, so with dropout the batched products are used.
    """
    if dropout_masks is not None and p > 0.0:
        return batched_attention(q, k, v, scale=scale, p=p, dropout_masks=dropout_masks, attention_mask=attention_mask)
    n_queries, n_keys = q.size(-2), k.size(-2)
    if attention_mask is None and n_queries == n_keys:
        return F.scaled_dot_product_attention(q, k, v, is_causal=n_queries > 1, scale=scale)
    if attention_mask is None and n_queries > 1:
        # torch's is_causal aligns the diagonal with the first key; ours belongs to the last.
        attention_mask = causal_mask(n_queries, n_keys, q.device)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=attention_mask, scale=scale)


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

    def forward(
        self, x: Tensor, *, dropout_masks: DropoutMasks | None = None, cache: LayerCache | None = None
    ) -> Tensor:
        """(B, T, C) -> (B, T, C); with a cache, x continues what is in it."""
        B, T, C = x.shape
        qkv = self.qkv(x).view(B, T, 3, self.n_head, self.head_size).permute(2, 0, 3, 1, 4)
        q, k, v = qkv  # each (B, nh, T, hs)
        if cache is not None:
            k, v = cache.extend(qkv[1:])
        attention_mask = cache.place.attention_mask if cache is not None else None
        heads = self.attend(
            q, k, v, scale=self.scale, p=self.p, dropout_masks=dropout_masks, attention_mask=attention_mask
        )
        concatenated = heads.transpose(1, 2).reshape(B, T, C)
        return dropout(self.proj(concatenated), self.p, dropout_masks)
