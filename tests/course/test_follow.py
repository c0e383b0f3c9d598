"""The vectors of one token against the model in numpy, for every kind of block."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy_gpt
import pytest
import torch
from random_gpt import random_gpt

from gptlite.course.follow import FollowedToken, Step, follow_last_token

IDS = [1, 5, 0, 0, 6, 2]
CLOSE = {"rtol": 1e-4, "atol": 1e-5}
KINDS: list[dict[str, Any]] = [
    {},
    {"bias": True, "activation": "relu", "tie_weights": False},
    {"norm": "post", "bias": True},
    {"position": "sinusoidal", "scale_embeddings": True},
    {"position": "none", "scale_attention": False},
    {"variant": "no_residual", "init": "gpt2"},
    {"variant": "no_feed_forward"},
    {"variant": "no_norm"},
]


def followed(**values: Any) -> tuple[FollowedToken, dict[str, Any], dict[str, np.ndarray], list[np.ndarray]]:
    """The followed token; the keys and weights of its model; what numpy_gpt passes to dropout, in order, then logits.

    These are the embeddings, and for each layer the weights of attention, its output and that of the feed-forward.
    """
    gpt = random_gpt(7, dtype=torch.float32, **values)
    weights = {name: p.detach().numpy().astype(np.float64) for name, p in gpt.named_parameters()}
    seen: list[np.ndarray] = []

    def keep(x: np.ndarray, p: float) -> np.ndarray:
        seen.append(x)
        return x

    keys = gpt.cfg.model_dump()
    seen.append(numpy_gpt.logits(weights, keys, np.array(IDS), keep))
    return follow_last_token(gpt, IDS), keys, weights, seen


def check_norm(step: Step, number: str, before: np.ndarray) -> np.ndarray:
    """Check a LayerNorm by its definition, and return its output."""
    assert (step.kind, step.name) == ("norm", number)
    mean = sum(before) / len(before)
    deviation = np.sqrt(sum((x - mean) ** 2 for x in before) / len(before))
    np.testing.assert_allclose(step.vectors["before"], before, **CLOSE)
    np.testing.assert_allclose([step.vectors["mean"], step.vectors["deviation"]], [mean, deviation], **CLOSE)
    return np.asarray(step.vectors["after"])


@pytest.mark.parametrize("values", KINDS, ids=str)
def test_every_vector_is_that_of_the_model_in_numpy(values):
    token, keys, w, (embedded, *rest, logits) = followed(**values)
    x = embedded[-1]
    np.testing.assert_allclose(token.stream, x, **CLOSE)
    np.testing.assert_allclose(token.embedding + (0.0 if token.position is None else token.position), x, **CLOSE)
    assert (token.position is None) is (keys["position"] == "none")
    names = ["attention"] if keys["variant"] == "no_feed_forward" else ["attention", "feed-forward"]
    keeps_x, is_post, has_norm = keys["variant"] != "no_residual", keys["norm"] == "post", keys["variant"] != "no_norm"
    expected = iter(rest)
    for i, layer in enumerate(token.layers):
        steps = iter(layer)
        for number, name in enumerate(names, start=1):
            into = check_norm(next(steps), str(number), x) if has_norm and not is_post else x
            if name == "attention":
                weights, output = next(expected), next(expected)[-1]
                projections, scores, mixed = (next(steps).vectors for _ in range(3))
                projected = into @ w[f"blocks.{i}.attn.qkv.weight"].T + w.get(f"blocks.{i}.attn.qkv.bias", 0.0)
                np.testing.assert_allclose(np.ravel([*projections.values()]), projected, **CLOSE)
                np.testing.assert_allclose(scores["weights"], weights[:, -1], **CLOSE)
                exponentials = np.exp(scores["scores"] - np.max(scores["scores"], axis=-1, keepdims=True))
                np.testing.assert_allclose(exponentials / exponentials.sum(-1, keepdims=True), weights[:, -1], **CLOSE)
                product = mixed["heads"].ravel() @ w[f"blocks.{i}.attn.proj.weight"].T
                np.testing.assert_allclose(product + w.get(f"blocks.{i}.attn.proj.bias", 0.0), output, **CLOSE)
            else:
                output, mixed = next(expected)[-1], next(steps).vectors
                hidden = into @ w[f"blocks.{i}.mlp.up.weight"].T + w.get(f"blocks.{i}.mlp.up.bias", 0.0)
                np.testing.assert_allclose(mixed["hidden"], numpy_gpt.ACTIVATIONS[keys["activation"]](hidden), **CLOSE)
            np.testing.assert_allclose(mixed["output"], output, **CLOSE)
            residual = next(steps)
            assert (residual.kind, residual.name) == ("residual", name)
            sums = [x, output, output + x if keeps_x else output]
            for vector, wanted in zip(residual.vectors.values(), sums, strict=True):
                np.testing.assert_allclose(vector, wanted, **CLOSE)
            x = check_norm(next(steps), str(number), sums[2]) if is_post else sums[2]
        assert not list(steps)
    if token.norm_f is not None:
        check_norm(token.norm_f, "", x)
    assert (token.norm_f is None) is (is_post or not has_norm)
    np.testing.assert_allclose(token.logits, logits[-1], **CLOSE)


def test_a_model_is_left_as_it_was():
    gpt = random_gpt(7, dtype=torch.float32)
    usual = gpt.blocks[0].attn.attend
    follow_last_token(gpt, IDS)
    assert gpt.blocks[0].attn.attend is usual
    assert not any(module._forward_hooks for module in gpt.modules())
