"""Metrics of evaluations besides scores: entropy of attention; for TensorBoard attention, embeddings, histograms."""

from __future__ import annotations

import math

import torch

from gptlite.compute.distributed import Dist
from gptlite.config.schema import RunConfig
from gptlite.data.dataset.tokens import Tokens
from gptlite.inference.inspect import Floats, attention_steps
from gptlite.inference.language_model import LanguageModel
from gptlite.loggers.media import Embeddings, Media, attention_image
from gptlite.tokenizers.readable import labels
from gptlite.training.diagnostics import weight_histograms

VALIDATION_TOKENS = 32
MAX_TOKENS = 128  # with more, one attention weight is less than a pixel
MAX_EMBEDDINGS = 10_000  # keeps the files small; the first ids of a BPE are the most frequent


def eval_media(model: LanguageModel, cfg: RunConfig, validation: Tokens, dist: Dist) -> dict[str, Media]:
    """Return what the config asks for, by tag; nothing without TensorBoard or on other processes than the main one."""
    if not (cfg.log.tensorboard and dist.is_main):
        return {}
    shown: dict[str, Media] = {"embeddings": token_embeddings(model)}
    if cfg.log.attention:
        shown |= attention_images(model, cfg, validation)
    if cfg.log.histograms:
        shown |= weight_histograms(model.gpt)
    return shown


def attention_entropies(model: LanguageModel, cfg: RunConfig, validation: Tokens, dist: Dist) -> dict[str, float]:
    """The mean entropy, in nats, of the attention weights of each block on the fixed text, by metric name.

    Beside it that of uniform weights, the largest possible: ln(t) for the query at position t. Nothing without
    log.attention or on other processes than the main one.
    """
    if not (cfg.log.attention and dist.is_main):
        return {}
    ids = fixed_text(model, cfg, validation)
    layers = attention_steps(model.gpt, ids)
    entropies = {f"block_{i}": mean_entropy(layer.weights) for i, layer in enumerate(layers, start=1)}
    entropies["uniform"] = sum(map(math.log, range(1, len(ids) + 1))) / len(ids)
    return {f"attention_entropy/{name}": entropy for name, entropy in entropies.items()}


def mean_entropy(weights: Floats) -> float:
    """The mean over heads and queries of -sum(w ln w), in nats, of attention weights (nh, T, T)."""
    terms = torch.special.entr(torch.from_numpy(weights).double())  # -w ln w, and 0 where w is 0
    return float(terms.sum(-1).mean())


def attention_images(model: LanguageModel, cfg: RunConfig, validation: Tokens) -> dict[str, Media]:
    """The attention weights of each layer on the fixed text."""
    layers = attention_steps(model.gpt, fixed_text(model, cfg, validation))
    return {f"attention/layer_{i}": attention_image(layer.weights) for i, layer in enumerate(layers, start=1)}


def fixed_text(model: LanguageModel, cfg: RunConfig, validation: Tokens) -> list[int]:
    """The ids of eval.prompt; where that is shorter than two tokens, of the beginning of the validation text."""
    ids = model.encode(cfg.eval.prompt)
    if len(ids) < 2:
        ids = validation.read(0, min(VALIDATION_TOKENS, validation.n_tokens)).tolist()
    return ids[: min(MAX_TOKENS, cfg.model.block_size)]


def token_embeddings(model: LanguageModel) -> Embeddings:
    """The rows of the token embedding table, (at most MAX_EMBEDDINGS, C)."""
    vectors = model.gpt.token_embedding.weight.detach()[:MAX_EMBEDDINGS].float().cpu().numpy()
    shown = labels(model.tokenizer.token_bytes(), range(len(vectors)), model.tokenizer.eot_id)
    return Embeddings([*shown.values()], vectors)
