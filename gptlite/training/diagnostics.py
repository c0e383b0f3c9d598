"""Optional measurements: gradient norms, the update ratio, learning rates, and the entropy and images of attention."""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils import get_total_norm

from gptlite.compute.distributed import Dist, own_part, whole
from gptlite.config.schema import RunConfig
from gptlite.data.dataset.tokens import Tokens
from gptlite.inference.inspect import Floats, attention_steps
from gptlite.inference.language_model import LanguageModel
from gptlite.loggers.metrics import Image
from gptlite.model.gpt import GPT
from gptlite.training.optim.build import Optimizers
from gptlite.training.trainer import Trainer

MAX_NUMBERS = 4096  # sampled of each parameter: enough for the norm of an update


class UpdateRatio:
    """The relative size of an update: the norm of the change of the parameters over their norm before.

    Large parameters are sampled at even spacing, over all columns alike, so that no copy of the model is made.
    """

    def __init__(self, model: GPT, dist: Dist) -> None:
        """dist: the processes, each of which may hold a part of the parameters."""
        self._dist = dist
        parameters = [own for p in model.parameters() if (own := own_part(p)).numel()]
        self._sampled = [p.detach().view(-1)[:: spacing(p)] for p in parameters]  # views
        roots = [math.sqrt(p.numel() / part.numel()) for p, part in zip(parameters, self._sampled, strict=True)]
        weights = [torch.full_like(part, root) for part, root in zip(self._sampled, roots, strict=True)]
        self._weights = torch.cat(weights)  # each sampled element stands for n, so it counts sqrt(n) times in a norm

    def numbers(self) -> Tensor:
        """Return the sampled parameters as they are now, weighted: (n,)."""
        return torch.cat(self._sampled) * self._weights

    def ratio(self, before: Tensor) -> float:
        """Return the ratio right after an update; before: `numbers` right before it."""
        squares = torch.stack([(self.numbers() - before).norm(), before.norm()]).square()
        change, size = self._dist.sum(squares).sqrt()
        return float(change / size)


def spacing(parameter: Tensor) -> int:
    """Return the least step to at most MAX_NUMBERS numbers without a common factor with the columns of a matrix."""
    step = math.ceil(parameter.numel() / MAX_NUMBERS)
    while math.gcd(step, parameter.size(-1)) > 1:
        step += 1
    return step


def layer_grad_norms(model: GPT) -> dict[str, float]:
    """Return the norm of the gradient of each layer, by metric name; the squares add up to that of the whole gradient.

    Layers are embeddings, block_1 to block_n, final_norm and head; those without trained parameters of their own are
    left out. Weights that head and embedding share count as embeddings.
    """
    gradients: dict[str, list[Tensor]] = defaultdict(list)
    for name, p in model.named_parameters():
        if p.grad is None:
            continue  # it is frozen
        module, number, *_ = name.split(".")
        layer = {"blocks": "block_", "ln_f": "final_norm", "head": "head"}.get(module, "embeddings")
        gradients[layer + str(int(number) + 1) if layer == "block_" else layer].append(p.grad)
    return {f"grad_norm/{layer}": whole(get_total_norm(tensors)).item() for layer, tensors in gradients.items()}


def learning_rates(optimizers: Optimizers) -> dict[str, float]:
    """Return the rate of each optimizer, where there are several: {"lr/muon": 0.01, "lr/adamw": 0.005}."""
    if len(optimizers) == 1:
        return {}
    return {f"lr/{type(each).__name__.lower()}": each.param_groups[0]["lr"] for each in optimizers}


VALIDATION_TOKENS = 32
MAX_TOKENS = 128  # with more, one attention weight is less than a pixel
TILE = 192  # pixels: the approximate side of one head's square
GAP, GREY = 4, 128  # between the squares


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
    """Return the mean over heads and queries of -sum(w ln w), in nats, of attention weights (nh, T, T)."""
    terms = torch.special.entr(torch.from_numpy(weights).double())  # -w ln w, and 0 where w is 0
    return float(terms.sum(-1).mean())


def fixed_text(model: LanguageModel, cfg: RunConfig, validation: Tokens) -> list[int]:
    """Return the ids of eval.prompt; where that is shorter than two tokens, of the beginning of the validation text."""
    ids = model.encode(cfg.eval.prompt)
    if len(ids) < 2:
        ids = validation.read(0, min(VALIDATION_TOKENS, validation.n_tokens)).tolist()
    return ids[: min(MAX_TOKENS, cfg.model.block_size)]


def attention_image(weights: Floats) -> Image:
    """Draw the attention weights (nh, T, T) of a layer from white to black: a square for each head, row by row."""
    columns, scale = math.ceil(math.sqrt(len(weights))), max(1, TILE // weights.shape[-1])
    shades = (255 * (1 - np.sqrt(weights))).round().astype(np.uint8)  # of the root, or small weights would be white
    enlarged = np.stack([shades] * 3, axis=-1).repeat(scale, axis=1).repeat(scale, axis=2)  # (nh, side, side, 3)
    tiles = [np.pad(tile, ((0, GAP), (0, GAP), (0, 0)), constant_values=GREY) for tile in enlarged]
    tiles += [np.full_like(tiles[0], GREY)] * (-len(tiles) % columns)
    rows = [np.hstack(tiles[start : start + columns]) for start in range(0, len(tiles), columns)]
    return np.vstack(rows)[:-GAP, :-GAP]
