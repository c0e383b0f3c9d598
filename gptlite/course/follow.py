"""Follow one token through a model: every vector between its embedding and the logits of the token after it.

Shapes: C = n_embd, T tokens of text, nh heads of size hs = C / nh, V = vocab_size.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from gptlite.inference.inspect import LayerSteps, record_attention
from gptlite.model.block import Block
from gptlite.model.gpt import GPT

Floats = npt.NDArray[np.floating[Any]]
Calls = dict[nn.Module, tuple[Floats, Floats]]  # the input and the output of each module for the last token

ATTENTION, FEED_FORWARD = "attention", "feed-forward"


@dataclass(frozen=True)
class Step:
    """One step of a layer for the last of T tokens, by its kind, with its vectors by name:

    norm         before, mean, deviation, after      a LayerNorm, with its learned gain and bias: (C,)
    projections  query, key, value                   (nh, hs)
    scores       scores, weights                     of the query with the key of every token: (nh, T)
    mixed        heads (nh, hs), output (C,)         the weighted sums of the values; concatenated, times W^O
    feed-forward hidden (4C,), output (C,)           after the activation; after the second matrix
    residual     before, added, after                the residual stream around a sublayer: (C,)
    """

    kind: str
    name: str  # the LayerNorm's number, or the sublayer's name
    vectors: Mapping[str, Floats]


@dataclass(frozen=True)
class FollowedToken:
    """The last token of a text, from its embedding to the logits."""

    embedding: Floats  # as it is added: with the factor of scale_embeddings, if any: (C,)
    position: Floats | None  # the row of the position table: (C,)
    stream: Floats  # what enters the first layer: (C,)
    layers: Sequence[Sequence[Step]]  # in the order in which they are computed
    norm_f: Step | None
    logits: Floats  # (V,)


@torch.no_grad()
def follow_last_token(gpt: GPT, ids: Sequence[int]) -> FollowedToken:
    """Follow the last token of a text of at most block_size tokens, in fp32, attention by the equation as written."""
    idx = torch.tensor([list(ids)], device=gpt.token_embedding.weight.device)
    with record_calls(gpt.modules()) as calls, record_attention(gpt) as attention:
        logits = gpt(idx)
    table = gpt.position_rows(slice(len(ids) - 1, len(ids)))
    factor = math.sqrt(gpt.cfg.n_embd) if gpt.cfg.scale_embeddings else 1.0
    has_residual = gpt.cfg.variant != "no_residual"
    blocks = [block for block in gpt.blocks if isinstance(block, Block)]
    return FollowedToken(
        embedding=factor * calls[gpt.token_embedding][1],
        position=None if table is None else _last(table[None]),
        stream=calls[blocks[0]][0],
        layers=[
            list(_steps(block, calls, steps, has_residual=has_residual))
            for block, steps in zip(blocks, attention, strict=True)
        ],
        norm_f=next(_norm(gpt.ln_f, calls, ""), None),
        logits=_last(logits),
    )


@contextmanager
def record_calls(modules: Iterable[nn.Module]) -> Iterator[Calls]:
    """Record the input and output of each module meanwhile; the last ones of a module that is called repeatedly."""
    calls: Calls = {}

    def record(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        calls[module] = _last(inputs[0]), _last(output)

    hooks = [module.register_forward_hook(record) for module in modules]
    try:
        yield calls
    finally:
        for hook in hooks:
            hook.remove()


def _steps(block: Block, calls: Calls, attention: LayerSteps, *, has_residual: bool) -> Iterator[Step]:
    """Yield the steps of a layer. A variant of the block may lack the feed-forward, the norms or the residual."""
    x = calls[block][0]
    sublayers: list[tuple[str, nn.Module, nn.LayerNorm]] = [(ATTENTION, block.attn, block.ln_1)]
    if hasattr(block, "mlp"):
        sublayers.append((FEED_FORWARD, block.mlp, block.ln_2))
    for number, (name, sublayer, norm) in enumerate(sublayers, start=1):
        norm_steps = list(_norm(norm, calls, str(number)))
        if block.norm == "pre":
            yield from norm_steps
        if sublayer is block.attn:
            yield from _attention(block, calls, attention)
        else:
            yield Step(name, name, dict(zip(("hidden", "output"), calls[block.mlp.down], strict=True)))
        added = calls[sublayer][1]
        after = x + added if has_residual else added
        yield Step("residual", name, {"before": x, "added": added, "after": after})
        x = after
        if block.norm == "post":
            yield from norm_steps
            x = calls[norm][1]


def _attention(block: Block, calls: Calls, steps: LayerSteps) -> Iterator[Step]:
    attn = block.attn
    projected = calls[attn.qkv][1].reshape(3, attn.n_head, attn.head_size)
    scores, weights, heads = (x[:, -1] for x in (steps.scores, steps.weights, steps.heads))
    yield Step("projections", ATTENTION, dict(zip(("query", "key", "value"), projected, strict=True)))
    yield Step("scores", ATTENTION, {"scores": scores, "weights": weights})
    yield Step("mixed", ATTENTION, {"heads": heads, "output": calls[attn.proj][1]})


def _norm(module: nn.Module, calls: Calls, name: str) -> Iterator[Step]:
    """Yield the step of a LayerNorm, nothing for a model without."""
    if isinstance(module, nn.LayerNorm):
        before, after = calls[module]
        vectors = {"before": before, "mean": before.mean(), "deviation": before.std(), "after": after}
        yield Step("norm", name, vectors)


def _last(x: Tensor) -> npt.NDArray[Any]:
    """Return the vector of the last token: (1, T, C) -> (C,)."""
    return np.asarray(x[0, -1].cpu())
