"""Looking inside: what every attention head did with a text, and how surprising each of its tokens was."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gptlite.data.batches import IGNORE_INDEX, read_batch
from gptlite.data.tokens import Tokens
from gptlite.inference.language_model import SCORE_BATCH_SIZE, LanguageModel
from gptlite.model.attention import AttentionMask, AttentionSteps, CausalSelfAttention, reference_attention
from gptlite.model.dropout import DropoutMasks
from gptlite.model.gpt import GPT

ALTERNATIVES = 5

Floats = npt.NDArray[np.floating[Any]]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class LayerSteps:
    """The attention of one layer to one text of T tokens, step by step, for each of its nh heads of size hs."""

    scores: Floats  # Q K^T * scale: (nh, T, T), row: the token that asks, column: the token that is asked
    masked: Floats  # -inf above the diagonal
    weights: Floats  # rows of sum 1
    values: Floats  # V: (nh, T, hs)
    heads: Floats  # weights V: (nh, T, hs)


@torch.no_grad()
def attention_steps(gpt: GPT, ids: Sequence[int]) -> list[LayerSteps]:
    """What each layer's attention does with a text of at most block_size tokens, in fp32, by the plain equation."""
    with keeping_steps(gpt) as kept:
        gpt.hidden(torch.tensor([list(ids)], device=gpt.token_embedding.weight.device))
    return [
        LayerSteps(*(_numpy(x[0]) for x in (steps.scores, steps.masked, steps.weights, v, steps.heads)))
        for steps, v in kept
    ]


@contextmanager
def keeping_steps(gpt: GPT) -> Iterator[list[tuple[AttentionSteps, Tensor]]]:
    """Inside, every layer attends by the plain equation, whose steps and values are kept, layer after layer."""
    kept: list[tuple[AttentionSteps, Tensor]] = []

    def attend(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        scale: float,
        p: float = 0.0,
        dropout_masks: DropoutMasks | None = None,
        attention_mask: AttentionMask = None,
    ) -> Tensor:
        steps = reference_attention(
            q, k, v, scale=scale, p=p, dropout_masks=dropout_masks, attention_mask=attention_mask
        )
        kept.append((steps, v))
        return steps.heads

    layers = [module for module in gpt.modules() if isinstance(module, CausalSelfAttention)]
    before = [layer.attend for layer in layers]
    try:
        for layer in layers:
            layer.attend = attend
        yield kept
    finally:
        for layer, usual in zip(layers, before, strict=True):
            layer.attend = usual


def position_table(gpt: GPT) -> Floats | None:
    """What is added to the token at each position: (block_size, C); None where the model has no such table."""
    table = gpt.positions(slice(0, gpt.cfg.block_size))
    return None if table is None else _numpy(table.detach())


@dataclass(frozen=True)
class TokenScores:
    """How the model saw each of n scored tokens come, and the k ids that it thought likeliest in its place."""

    ids: Integers  # (n,)
    nats: npt.NDArray[np.float64]  # -log p of the token: (n,)
    ranks: Integers  # 1: nothing was likelier: (n,)
    top_ids: Integers  # likeliest first: (n, k)
    top_probabilities: Floats  # (n, k)

    def first(self, n: int) -> TokenScores:
        """Those of the first n tokens."""
        return TokenScores(self.ids[:n], self.nats[:n], self.ranks[:n], self.top_ids[:n], self.top_probabilities[:n])


@torch.no_grad()
def score_each_token(model: LanguageModel, tokens: Tokens, *, batch_size: int = SCORE_BATCH_SIZE) -> TokenScores:
    """The terms of the sum in `Model.score_tokens`, in the order of the text."""
    windows, seen = model.windows(tokens), {}
    for plan in windows.batches(batch_size):
        x, y = read_batch(windows, plan)
        with model.compute.autocast():
            logits = model.gpt(x.to(model.compute.device))
        # Row by row: with a large vocabulary, what follows takes several times the memory of the logits.
        for start, *window in zip(plan[:, 0].tolist(), logits, y.to(model.compute.device), strict=True):
            seen[start] = _of_window(*window)
    parts = [seen[start] for start in sorted(seen)]
    return TokenScores(*(np.concatenate(field) for field in zip(*parts, strict=True)))


def _of_window(logits: Tensor, y: Tensor) -> tuple[npt.NDArray[Any], ...]:
    """The fields of Surprises for one window: (T, V), (T,) with targets of IGNORED left out."""
    scored = y != IGNORE_INDEX
    targets = y[scored]  # (n,)
    at_least_fp32 = torch.promote_types(logits.dtype, torch.float32)
    log_p = torch.log_softmax(logits[scored], dim=-1, dtype=at_least_fp32)  # (n, V)
    own = log_p.gather(-1, targets[:, None])  # (n, 1)
    ranks = 1 + (log_p > own).sum(-1)
    top, top_ids = log_p.topk(min(ALTERNATIVES, log_p.size(-1)))
    return tuple(_numpy(x) for x in (targets, -own[:, 0].cpu().double(), ranks, top_ids, top.exp()))


def _numpy(x: Tensor) -> npt.NDArray[Any]:
    array: npt.NDArray[Any] = x.cpu().numpy()
    return array
