"""Inspect a model: the attention of every head for a text, and the score of each of its tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gptlite.data.dataset.batches import eval_batches
from gptlite.data.dataset.tokens import Tokens
from gptlite.inference.language_model import SCORE_BATCH_SIZE, LanguageModel
from gptlite.inference.score import compute_logits
from gptlite.model.attention import AttentionOptions, CausalSelfAttention, reference_attention
from gptlite.model.gpt import GPT
from gptlite.model.loss import IGNORE_INDEX

ALTERNATIVES = 5

Floats = npt.NDArray[np.floating[Any]]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class LayerSteps:
    """The attention of one layer for a text of T tokens, step by step, for each of its nh heads of size hs."""

    scores: Floats  # Q K^T * scale: (nh, T, T), a row per query, a column per key
    masked: Floats  # the same, -inf above the diagonal
    weights: Floats  # softmax over the keys: each row sums to 1
    values: Floats  # V: (nh, T, hs)
    heads: Floats  # weights V: (nh, T, hs)


@torch.no_grad()
def attention_steps(gpt: GPT, ids: Sequence[int]) -> list[LayerSteps]:
    """Work out the attention of each layer for a text of at most block_size tokens, in fp32, as the equation says."""
    with record_attention(gpt) as layers:
        gpt.hidden(torch.tensor([list(ids)], device=gpt.token_embedding.weight.device))
    return layers


@contextmanager
def record_attention(gpt: GPT) -> Iterator[list[LayerSteps]]:
    """Let every layer attend by `reference_attention` meanwhile, and record the steps of the first text."""
    recorded: list[LayerSteps] = []

    def attend(q: Tensor, k: Tensor, v: Tensor, options: AttentionOptions) -> Tensor:
        steps = reference_attention(q, k, v, options)
        shown = (steps.scores, steps.masked, steps.weights, v, steps.heads)
        recorded.append(LayerSteps(*(_numpy(x[0]) for x in shown)))
        return steps.heads

    layers = [module for module in gpt.modules() if isinstance(module, CausalSelfAttention)]
    usual = [layer.attend for layer in layers]
    try:
        for layer in layers:
            layer.attend = attend
        yield recorded
    finally:
        for layer, attend_before in zip(layers, usual, strict=True):
            layer.attend = attend_before


def position_table(gpt: GPT) -> Floats | None:
    """Return the vectors that are added to tokens, by position: (block_size, C); None for a model without a table."""
    table = gpt.position_rows(slice(0, gpt.cfg.block_size))
    return None if table is None else _numpy(table.detach())


@dataclass(frozen=True)
class TokenScores:
    """The score of each of n tokens, and the k ids that were most likely in its place."""

    ids: Integers  # (n,)
    nats: npt.NDArray[np.float64]  # -log p of the token: (n,)
    ranks: Integers  # 1 is the most likely: (n,)
    top_ids: Integers  # the most likely first: (n, k)
    top_probabilities: Floats  # (n, k)


@torch.no_grad()
def score_each_token(
    model: LanguageModel, tokens: Tokens, *, batch_size: int = SCORE_BATCH_SIZE, most: int | None = None
) -> TokenScores:
    """Score tokens as `LanguageModel.score_tokens` does, but each separately: the first `most` of the text."""
    scored = {}
    for windows, batch in eval_batches(model.windows(tokens), batch_size):
        logits, y = compute_logits(model.gpt, batch, model.compute)
        # Row by row: with a large vocabulary, ranking takes several times the memory of the logits.
        for start, *window in zip(windows[:, 0].tolist(), logits, y, strict=True):
            scored[start] = _score_window(*window)
    parts = [scored[start] for start in sorted(scored)]
    return TokenScores(*(np.concatenate(field)[:most] for field in zip(*parts, strict=True)))


def _score_window(logits: Tensor, y: Tensor) -> tuple[npt.NDArray[Any], ...]:
    """Return the fields of TokenScores for one window, without targets of IGNORE_INDEX: (T, V), (T,)."""
    scored = y != IGNORE_INDEX
    targets = y[scored]  # (n,)
    at_least_fp32 = torch.promote_types(logits.dtype, torch.float32)
    log_p = torch.log_softmax(logits[scored], dim=-1, dtype=at_least_fp32)  # (n, V)
    own = log_p.gather(-1, targets[:, None])  # (n, 1)
    ranks = 1 + (log_p > own).sum(-1)
    top, top_ids = log_p.topk(min(ALTERNATIVES, log_p.size(-1)))
    return tuple(_numpy(x) for x in (targets, -own[:, 0].cpu().double(), ranks, top_ids, top.exp()))


def _numpy(x: Tensor) -> npt.NDArray[Any]:
    return np.asarray(x.cpu())
