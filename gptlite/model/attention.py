"""Causal multi-head attention: the equation as written (`reference_attention`), and the fast paths that must equal it.

Shapes: B sequences, T new tokens, S = tokens so far including the new ones (S = T without a cache),
C = n_embd, nh = n_head, hs = head_size = C / nh. The T queries belong to the last T of the S positions.

The causal mask is `causal_mask`, in training and through a cache; torch's kernel makes the same one from `is_causal`.
Where the sequences of a cache differ in length, `KVCache.advance` makes a mask for each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gptlite.config.schema import ModelSection
from gptlite.model.cache import LayerCache
from gptlite.model.dropout import DropoutMasks, dropout


def causal_mask(n_queries: int, n_keys: int, device: torch.device) -> Tensor:
    """Return True where key s is not later than query t: (T, S) bool, for queries at the last T of the S positions."""
    return torch.ones(n_queries, n_keys, dtype=torch.bool, device=device).tril(n_keys - n_queries)


@dataclass(frozen=True)
class AttentionOptions:
    """What every path needs beside Q (B, nh, T, hs) and K, V (B, nh, S, hs)."""

    scale: float
    p: float = 0.0  # of dropout
    dropout_masks: DropoutMasks | None = None
    # True where a query may attend to a key, in a shape that broadcasts to (B, nh, T, S); None: the causal mask.
    attention_mask: Tensor | None = None

    def mask_of(self, q: Tensor, k: Tensor) -> Tensor:
        """Return the attention mask, where there is none the causal one."""
        return causal_mask(q.size(-2), k.size(-2), q.device) if self.attention_mask is None else self.attention_mask


@dataclass(frozen=True)
class AttentionSteps:
    """Every step of the attention of Vaswani et al. 2017 (arXiv 1706.03762), section 3.2.1."""

    scores: Tensor  # Q K^T * scale: (B, nh, T, S)
    masked: Tensor  # the same, -inf where attention_mask is False
    weights: Tensor  # softmax over the keys: each row sums to 1
    heads: Tensor  # weights V: (B, nh, T, hs)


def reference_attention(q: Tensor, k: Tensor, v: Tensor, options: AttentionOptions) -> AttentionSteps:
    """Compute dropout(softmax(mask(Q K^T * scale))) V step by step."""
    scores = q @ k.transpose(-2, -1) * options.scale
    masked = scores.masked_fill(~options.mask_of(q, k), -math.inf)
    weights = torch.softmax(masked, dim=-1)
    dropped = dropout(weights, options.p, options.dropout_masks)
    return AttentionSteps(scores, masked, weights, dropped.to(v.dtype) @ v)


def plain_attention(q: Tensor, k: Tensor, v: Tensor, options: AttentionOptions) -> Tensor:
    """Compute it as written: (B, nh, T, hs), 2 x (B, nh, S, hs) -> (B, nh, T, hs). The other paths must equal it."""
    return reference_attention(q, k, v, options).heads


def batched_attention(q: Tensor, k: Tensor, v: Tensor, options: AttentionOptions) -> Tensor:
    """Compute the same function as two batched matrix products over all B x nh heads.

    The first product scales and masks as well, so the scores are written once. For short sequences on a CPU this beats
    the fused kernel, whose blocks are then too small to keep all cores busy.
    """
    mask = options.mask_of(q, k)
    bias = torch.zeros(mask.shape, dtype=q.dtype, device=q.device).masked_fill_(~mask, -math.inf)
    if bias.dim() > 2:
        bias = bias.expand(*q.shape[:-1], k.size(-2)).flatten(0, 1)  # (B nh, T, S)
    queries, keys, values = q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1)  # (B nh, T or S, hs)
    masked = torch.baddbmm(bias, queries, keys.mT, alpha=options.scale)  # (B nh, T, S)
    weights = dropout(torch.softmax(masked, dim=-1), options.p, options.dropout_masks)
    return torch.bmm(weights.to(values.dtype), values).view(q.shape)


def fused_attention(q: Tensor, k: Tensor, v: Tensor, options: AttentionOptions) -> Tensor:
    """Compute the same function by torch's kernel, which never writes the (T, S) weights to memory.

    With dropout, `batched_attention` is used: the kernel draws its masks from global state.
    """
    if options.dropout_masks is not None and options.p > 0.0:
        return batched_attention(q, k, v, options)
    n_queries, mask, scale = q.size(-2), options.attention_mask, options.scale
    if mask is None and n_queries == k.size(-2):
        return F.scaled_dot_product_attention(q, k, v, is_causal=n_queries > 1, scale=scale)
    if mask is None and n_queries > 1:
        # torch's is_causal lets the first query see the first key only; ours are the last queries.
        mask = options.mask_of(q, k)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)


ATTENTION: Mapping[str, Callable[[Tensor, Tensor, Tensor, AttentionOptions], Tensor]] = {  # by run.attention
    "plain": plain_attention,
    "batched": batched_attention,
    "fused": fused_attention,
}


class CausalSelfAttention(nn.Module):
    """proj(concat(head_1, ..., head_nh)), where head_i = attention(Q_i, K_i, V_i) and Q, K, V = qkv(x)."""

    def __init__(self, cfg: ModelSection, attention: str) -> None:
        super().__init__()
        self.n_head, self.head_size = cfg.n_head, cfg.head_size
        self.p_weights, self.p_output = cfg.dropouts.attention, cfg.dropouts.residual
        self.scale = 1.0 / math.sqrt(cfg.head_size) if cfg.scale_attention else 1.0
        self.attend = ATTENTION[attention]
        self.qkv = nn.Linear(cfg.n_embd, 3 * cfg.n_embd, bias="qkv" in cfg.biases)
        self.proj = nn.Linear(cfg.n_embd, cfg.n_embd, bias="proj" in cfg.biases)

    def forward(
        self, x: Tensor, *, dropout_masks: DropoutMasks | None = None, cache: LayerCache | None = None
    ) -> Tensor:
        """(B, T, C) -> (B, T, C). With a cache, x continues the tokens that it holds."""
        B, T, C = x.shape
        qkv = self.qkv(x).view(B, T, 3, self.n_head, self.head_size).permute(2, 0, 3, 1, 4)
        q, k, v = qkv  # each (B, nh, T, hs)
        if cache is not None:
            k, v = cache.extend(qkv[1:])
        mask = None if cache is None else cache.position.attention_mask
        heads = self.attend(q, k, v, AttentionOptions(self.scale, self.p_weights, dropout_masks, mask))
        concatenated = heads.transpose(1, 2).reshape(B, T, C)
        return dropout(self.proj(concatenated), self.p_output, dropout_masks)
