"""Attention at evaluations: its entropy, and for TensorBoard images of its weights."""

from __future__ import annotations

import math

import torch

from gptlite.config.schema import RunConfig
from gptlite.data.dataset.tokens import Tokens
from gptlite.inference.inspect import Floats, attention_steps
from gptlite.inference.language_model import LanguageModel
from gptlite.loggers.media import Image, attention_image
from gptlite.training.trainer import Trainer

VALIDATION_TOKENS = 32
MAX_TOKENS = 128  # with more, one attention weight is less than a pixel


def measure_attention(trainer: Trainer) -> tuple[dict[str, float], dict[str, Image]]:
    """Return the mean entropy, in nats, of the attention weights of each block on the fixed text, by metric name, and
    with TensorBoard images of the weights, by tag.

    Beside it that of uniform weights, the largest possible: ln(t) for the query at position t. Nothing without
    log.attention or on other processes than the main one.
    """
    if not (trainer.cfg.log.attention and trainer.dist.is_main):
        return {}, {}
    ids = fixed_text(trainer.language_model, trainer.cfg, trainer.validation)
    layers = list(enumerate(attention_steps(trainer.model, ids), start=1))
    entropies = {f"block_{i}": mean_entropy(layer.weights) for i, layer in layers}
    entropies["uniform"] = sum(map(math.log, range(1, len(ids) + 1))) / len(ids)
    shown = layers if trainer.cfg.log.tensorboard else []
    images = {f"attention/layer_{i}": attention_image(layer.weights) for i, layer in shown}
    return {f"attention_entropy/{name}": entropy for name, entropy in entropies.items()}, images


def mean_entropy(weights: Floats) -> float:
    """The mean over heads and queries of -sum(w ln w), in nats, of attention weights (nh, T, T)."""
    terms = torch.special.entr(torch.from_numpy(weights).double())  # -w ln w, and 0 where w is 0
    return float(terms.sum(-1).mean())


def fixed_text(model: LanguageModel, cfg: RunConfig, validation: Tokens) -> list[int]:
    """The ids of eval.prompt; where that is shorter than two tokens, of the beginning of the validation text."""
    ids = model.encode(cfg.eval.prompt)
    if len(ids) < 2:
        ids = validation.read(0, min(VALIDATION_TOKENS, validation.n_tokens)).tolist()
    return ids[: min(MAX_TOKENS, cfg.model.block_size)]
