"""Follow one token through a model: every vector between its embedding and the logits of the token after it.

Shapes: C = n_embd, T tokens of text, nh heads of size hs = C / nh, V = vocab_size.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from gptlite.inference.inspect import record_attention
from gptlite.model.attention import AttentionSteps
from gptlite.model.block import Block
from gptlite.model.gpt import GPT

Floats = npt.NDArray[np.floating[Any]]
Calls = dict[nn.Module, tuple[Tensor, Tensor]]  # the input and the output of each module


@dataclass(frozen=True)
class NormStep:
    """LayerNorm on one vector."""

    before: Floats  # (C,)
    mean: float
    deviation: float  # the square root of the mean squared distance from the mean
    after: Floats  # (C,), with the learned gain and bias


@dataclass(frozen=True)
class LayerOfToken:
    """The vectors of one token in one layer, the last of T tokens."""

    before: Floats  # the residual stream that enters the layer: (C,)
    norm_1: NormStep | None
    query: Floats  # (nh, hs)
    key: Floats  # (nh, hs)
    value: Floats  # (nh, hs)
    scores: Floats  # the query with the key of every token: (nh, T)
    weights: Floats  # softmax of the scores: (nh, T)
    heads: Floats  # the weighted sums of the values: (nh, hs)
    attention: Floats  # the heads, concatenated, times W^O: (C,)
    with_attention: Floats  # the residual stream after it, before a LayerNorm that follows: (C,)
    norm_2: NormStep | None
    hidden: Floats | None  # of the feed-forward, after the activation: (4C,); None without a feed-forward
    feed_forward: Floats | None  # (C,)
    with_feed_forward: Floats | None  # (C,)


@dataclass(frozen=True)
class FollowedToken:
    """The last token of a text, from its embedding to the logits."""

    embedding: Floats  # as it is added: with the factor of scale_embeddings, if any: (C,)
    position: Floats | None  # the row of the position table: (C,)
    layers: list[LayerOfToken]
    norm_f: NormStep | None
    logits: Floats  # (V,)


@torch.no_grad()
def follow_last_token(gpt: GPT, ids: Sequence[int]) -> FollowedToken:
    """Follow the last token of a text of at most block_size tokens, in fp32, attention by the equation as written."""
    idx = torch.tensor([list(ids)], device=gpt.token_embedding.weight.device)
    with record_calls(gpt.modules()) as calls, record_attention(gpt) as attention:
        logits = gpt(idx)
    table = gpt.position_rows(slice(len(ids) - 1, len(ids)))
    position = None if table is None else _last(table[None])
    factor = math.sqrt(gpt.cfg.n_embd) if gpt.cfg.scale_embeddings else 1.0
    return FollowedToken(
        embedding=factor * _last(calls[gpt.token_embedding][1]),
        position=position,
        layers=[_layer(block, calls, steps) for block, (steps, _) in zip(_blocks(gpt), attention, strict=True)],
        norm_f=_norm(gpt.ln_f, calls),
        logits=_last(logits),
    )


@contextmanager
def record_calls(modules: Iterable[nn.Module]) -> Iterator[Calls]:
    """Record the input and output of each module meanwhile; the last ones of a module that is called repeatedly."""
    calls: Calls = {}

    def record(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        calls[module] = inputs[0], output

    hooks = [module.register_forward_hook(record) for module in modules]
    try:
        yield calls
    finally:
        for hook in hooks:
            hook.remove()


def _blocks(gpt: GPT) -> list[Block]:
    return [block for block in gpt.blocks if isinstance(block, Block)]


def _layer(block: Block, calls: Calls, steps: AttentionSteps) -> LayerOfToken:
    before, after = calls[block]
    attn = block.attn
    query, key, value = _last(calls[attn.qkv][1]).reshape(3, attn.n_head, attn.head_size)
    mlp = getattr(block, "mlp", None)  # model.variant: no_feed_forward has none
    norm_1, norm_2 = _norm(block.ln_1, calls), _norm(getattr(block, "ln_2", None), calls)
    if mlp is None:
        with_attention = _last(after)
    elif block.norm == "post" and norm_1 is not None:
        with_attention = norm_1.before
    else:
        with_attention = _last(calls[mlp.up][0]) if norm_2 is None else norm_2.before
    with_feed_forward = norm_2.before if block.norm == "post" and norm_2 is not None else _last(after)
    return LayerOfToken(
        before=_last(before),
        norm_1=norm_1,
        query=query,
        key=key,
        value=value,
        scores=_last_query(steps.scores),
        weights=_last_query(steps.weights),
        heads=_last_query(steps.heads),
        attention=_last(calls[attn.proj][1]),
        with_attention=with_attention,
        norm_2=norm_2,
        hidden=None if mlp is None else _last(calls[mlp.down][0]),
        feed_forward=None if mlp is None else _last(calls[mlp.down][1]),
        with_feed_forward=None if mlp is None else with_feed_forward,
    )


def _norm(module: nn.Module | None, calls: Calls) -> NormStep | None:
    if not isinstance(module, nn.LayerNorm):
        return None
    before, after = (_last(x) for x in calls[module])
    return NormStep(before, float(before.mean()), float(before.std()), after)


def _last(x: Tensor) -> npt.NDArray[Any]:
    """(1, T, C) -> (C,)"""
    array: npt.NDArray[Any] = x[0, -1].cpu().numpy()
    return array


def _last_query(x: Tensor) -> npt.NDArray[Any]:
    """(1, nh, T, S) -> (nh, S)"""
    array: npt.NDArray[Any] = x[0, :, -1].cpu().numpy()
    return array
