"""The model once more from the papers, in numpy, one head and one position at a time: what tests expect of the package.

Nothing is imported from it. `w` are the weights by our names, `keys` the values of the config's section `model`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Drop = Callable[[Floats, float], Floats]

ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
}


def sinusoids(n_positions: int, width: int) -> Floats:
    """Vaswani et al. 2017, section 3.5, number by number."""
    table = np.zeros((n_positions, width))
    for pos, column in itertools.product(range(n_positions), range(width)):
        angle = pos / 10000 ** (2 * (column // 2) / width)
        table[pos, column] = math.cos(angle) if column % 2 else math.sin(angle)
    return table


def position_table(w: Mapping[str, Floats], keys: Mapping[str, Any], n_positions: int) -> Floats | float:
    if keys["position"] == "none":
        return 0.0
    if keys["position"] == "learned":
        return w["position_embedding.weight"][:n_positions]
    token_std = 1.0 if keys["init"] == "torch" else 0.02
    scale = 1.0 if keys["scale_embeddings"] else token_std / math.sqrt(0.5)  # sin^2 and cos^2 are 1/2 in the mean
    return scale * sinusoids(n_positions, keys["n_embd"])


def has_bias(keys: Mapping[str, Any], place: str) -> bool:
    return keys["bias"] if isinstance(keys["bias"], bool) else place in keys["bias"]


def never(x: Floats, p: float) -> Floats:
    """No dropout."""
    return x


def logits(w: Mapping[str, Floats], keys: Mapping[str, Any], idx: npt.NDArray[np.int64], drop: Drop = never) -> Floats:
    """(T,) -> (T, V). drop: dropout with a probability, called in the order in which the model draws its masks."""
    width, n_head = keys["n_embd"], keys["n_head"]
    head_size = width // n_head
    p_embedding, p_attention, p_residual = (
        keys["dropout"] if keys[f"{place}_dropout"] is None else keys[f"{place}_dropout"]
        for place in ("embedding", "attention", "residual")
    )

    def norm(x: Floats, name: str) -> Floats:
        if keys["variant"] == "no_norm":
            return x
        normed = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * w[f"{name}.weight"]
        return normed + w[f"{name}.bias"] if has_bias(keys, "norm") else normed

    def linear(x: Floats, name: str, place: str) -> Floats:
        product = x @ w[f"{name}.weight"].T
        return product + w[f"{name}.bias"] if has_bias(keys, place) else product

    def attention(x: Floats, at: str) -> Floats:
        rows = np.split(linear(x, f"{at}.qkv", "qkv"), 3, axis=-1)
        q, k, v = (np.split(part, n_head, axis=-1) for part in rows)
        weights = np.zeros((n_head, len(x), len(x)))
        for head, t in itertools.product(range(n_head), range(len(x))):
            seen = range(len(x) if keys["variant"] == "no_mask" else t + 1)
            scores = np.array([q[head][t] @ k[head][s] for s in seen])
            if keys["scale_attention"]:
                scores = scores / math.sqrt(head_size)
            weights[head, t, : len(seen)] = np.exp(scores) / np.exp(scores).sum()
        weights = drop(weights, p_attention)
        heads = np.concatenate([weights[head] @ v[head] for head in range(n_head)], axis=-1)
        return drop(linear(heads, f"{at}.proj", "proj"), p_residual)

    def feed_forward(x: Floats, at: str) -> Floats:
        h = ACTIVATIONS[keys["activation"]](linear(x, f"{at}.up", "mlp"))
        return drop(linear(h, f"{at}.down", "mlp"), p_residual)

    tokens = w["token_embedding.weight"][idx] * (math.sqrt(width) if keys["scale_embeddings"] else 1.0)
    x = drop(tokens + position_table(w, keys, len(idx)), p_embedding)
    for at in (f"blocks.{layer}" for layer in range(keys["n_layer"])):
        if keys["variant"] == "no_residual":
            x = feed_forward(norm(attention(norm(x, f"{at}.ln_1"), f"{at}.attn"), f"{at}.ln_2"), f"{at}.mlp")
        elif keys["variant"] == "no_feed_forward":
            x = x + attention(norm(x, f"{at}.ln_1"), f"{at}.attn")
        elif keys["norm"] == "pre":
            x = x + attention(norm(x, f"{at}.ln_1"), f"{at}.attn")
            x = x + feed_forward(norm(x, f"{at}.ln_2"), f"{at}.mlp")
        else:
            x = norm(x + attention(x, f"{at}.attn"), f"{at}.ln_1")
            x = norm(x + feed_forward(x, f"{at}.mlp"), f"{at}.ln_2")
    if keys["norm"] == "pre":
        x = norm(x, "ln_f")
    return x @ w["token_embedding.weight" if keys["tie_weights"] else "head.weight"].T


def loss(w: Mapping[str, Floats], keys: Mapping[str, Any], ids: npt.NDArray[np.int64]) -> float:
    """The sum of -log p of the tokens after the first, in nats: (T + 1,) -> scalar."""
    rows = logits(w, keys, ids[:-1])
    return sum(math.log(np.exp(row).sum()) - row[target] for row, target in zip(rows, ids[1:], strict=True))
