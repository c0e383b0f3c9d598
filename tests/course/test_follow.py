"""The vectors of one token against the model in numpy, for every kind of block."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy_gpt
import pytest
import torch

from gptlite.config.schema import ModelSection
from gptlite.course.follow import FollowedToken, NormStep, follow_last_token
from gptlite.model.gpt import GPT

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
    cfg = ModelSection(**{"n_layer": 2, "n_head": 2, "n_embd": 8, "block_size": 6, **values})
    gpt = GPT(cfg, 7, rng=torch.Generator().manual_seed(0))
    with torch.no_grad():
        for i, p in enumerate(gpt.parameters()):
            p.add_(0.5 * torch.randn(p.shape, generator=torch.Generator().manual_seed(i)))
    weights = {name: p.detach().numpy().astype(np.float64) for name, p in gpt.named_parameters()}
    seen: list[np.ndarray] = []

    def keep(x: np.ndarray, p: float) -> np.ndarray:
        seen.append(x)
        return x

    keys = cfg.model_dump()
    seen.append(numpy_gpt.logits(weights, keys, np.array(IDS), keep))
    return follow_last_token(gpt, IDS), keys, weights, seen


def check_norm(step: NormStep | None, keys: dict[str, Any], before: np.ndarray) -> np.ndarray:
    """Check a LayerNorm by its definition, and return its output, or the input for a model without norms."""
    if keys["variant"] == "no_norm":
        assert step is None
        return before
    assert step is not None
    mean = sum(before) / len(before)
    deviation = np.sqrt(sum((x - mean) ** 2 for x in before) / len(before))
    np.testing.assert_allclose(step.before, before, **CLOSE)
    np.testing.assert_allclose([step.mean, step.deviation], [mean, deviation], **CLOSE)
    return np.asarray(step.after)


@pytest.mark.parametrize("values", KINDS, ids=str)
def test_every_vector_is_that_of_the_model_in_numpy(values):
    token, keys, w, (embedded, *rest, logits) = followed(**values)
    position = 0.0 if token.position is None else token.position
    x = embedded[-1]
    np.testing.assert_allclose(token.embedding + position, x, **CLOSE)
    assert (token.position is None) is (keys["position"] == "none")
    per_layer = 2 if keys["variant"] == "no_feed_forward" else 3
    keeps_x = keys["variant"] != "no_residual"
    is_post = keys["norm"] == "post"
    for i, layer in enumerate(token.layers):
        weights, attention, *feed_forward = rest[i * per_layer :][:per_layer]
        np.testing.assert_allclose(layer.before, x, **CLOSE)
        into = x if is_post else check_norm(layer.norm_1, keys, x)
        projected = into @ w[f"blocks.{i}.attn.qkv.weight"].T + w.get(f"blocks.{i}.attn.qkv.bias", 0.0)
        np.testing.assert_allclose(np.ravel([layer.query, layer.key, layer.value]), projected, **CLOSE)
        np.testing.assert_allclose(layer.weights, weights[:, -1], **CLOSE)
        exponentials = np.exp(layer.scores - np.max(layer.scores, axis=-1, keepdims=True))
        np.testing.assert_allclose(exponentials / exponentials.sum(-1, keepdims=True), weights[:, -1], **CLOSE)
        output = layer.heads.ravel() @ w[f"blocks.{i}.attn.proj.weight"].T
        np.testing.assert_allclose(output + w.get(f"blocks.{i}.attn.proj.bias", 0.0), attention[-1], **CLOSE)
        np.testing.assert_allclose(layer.attention, attention[-1], **CLOSE)
        x = attention[-1] + (x if keeps_x else 0.0)
        np.testing.assert_allclose(layer.with_attention, x, **CLOSE)
        if is_post:
            x = check_norm(layer.norm_1, keys, x)
        if not feed_forward:
            assert (layer.hidden, layer.feed_forward, layer.with_feed_forward, layer.norm_2) == (None, None, None, None)
            continue
        into = x if is_post else check_norm(layer.norm_2, keys, x)
        hidden = into @ w[f"blocks.{i}.mlp.up.weight"].T + w.get(f"blocks.{i}.mlp.up.bias", 0.0)
        np.testing.assert_allclose(layer.hidden, numpy_gpt.ACTIVATIONS[keys["activation"]](hidden), **CLOSE)
        np.testing.assert_allclose(layer.feed_forward, feed_forward[0][-1], **CLOSE)
        x = feed_forward[0][-1] + (x if keeps_x else 0.0)
        np.testing.assert_allclose(layer.with_feed_forward, x, **CLOSE)
        if is_post:
            x = check_norm(layer.norm_2, keys, x)
    if is_post:
        assert token.norm_f is None
    else:
        check_norm(token.norm_f, keys, x)
    np.testing.assert_allclose(token.logits, logits[-1], **CLOSE)


def test_a_model_is_left_as_it_was():
    cfg = ModelSection(n_layer=1, n_head=2, n_embd=8, block_size=6)
    gpt = GPT(cfg, 7, rng=torch.Generator().manual_seed(0))
    usual = gpt.blocks[0].attn.attend
    follow_last_token(gpt, IDS)
    assert gpt.blocks[0].attn.attend is usual
    assert not any(module._forward_hooks for module in gpt.modules())
