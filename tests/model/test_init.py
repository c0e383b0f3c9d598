"""The initial weights, against what the papers, torch and transformers say."""

from __future__ import annotations

import math

import numpy as np
import numpy_gpt
import pytest
import torch
from torch import nn

from gptlite.config.schema import ModelSection
from gptlite.model.gpt import GPT
from gptlite.model.gpt2_layout import gpt2_name

WIDE = {"n_layer": 2, "n_head": 2, "n_embd": 64, "block_size": 32, "bias": True, "tie_weights": False}


def fresh(vocab_size: int = 300, **values) -> GPT:
    return GPT(ModelSection(**{**WIDE, **values}), vocab_size, rng=torch.Generator().manual_seed(0))


def assert_normal(p: torch.Tensor, std: float, name: str) -> None:
    """Within four standard deviations of the mean and of the spread of so many draws."""
    assert abs(p.mean().item()) < 4 * std / math.sqrt(p.numel()), name
    assert p.std().item() == pytest.approx(std, rel=4 / math.sqrt(2 * p.numel())), name


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_zero_weights_are_normal_the_last_of_each_branch_and_biases_zero_and_norms_one(norm):
    for name, p in fresh(norm=norm, init="zero").named_parameters():
        if ".ln_" in f".{name}" and name.endswith("weight"):
            assert bool((p == 1).all()), name
        elif name.endswith(("bias", "attn.proj.weight", "mlp.down.weight")):
            assert bool((p == 0).all()), name
        else:
            assert_normal(p, 0.02, name)


@pytest.mark.parametrize("init", ["zero", "previous"])
def test_every_pre_norm_block_starts_as_the_identity_and_a_post_norm_block_as_its_norms(init):
    x = torch.randn(2, 12, 64, generator=torch.Generator().manual_seed(0))
    assert torch.equal(fresh(init=init).blocks[1](x), x)
    twice = nn.functional.layer_norm(nn.functional.layer_norm(x, (64,)), (64,))
    torch.testing.assert_close(fresh(norm="post", init=init).blocks[1](x), twice)


@pytest.mark.parametrize("shape", [{}, {"n_head": 8}, {"scale_attention": False}, {"norm": "post"}, {"n_layer": 1}])
def test_with_previous_each_head_of_the_first_two_blocks_attends_to_a_token_just_before(shape):
    # Wide, because the tokens add noise: at width 64 a head misses about a tenth of the positions.
    model = fresh(init="previous", **{"n_layer": 3, "n_embd": 256, "n_head": 4, **shape})
    steps = follow(model, torch.randint(0, 300, (32,), generator=torch.Generator().manual_seed(1)))
    for layer, weights in enumerate(steps):  # (nh, T, T)
        for head, of_head in enumerate(weights):
            distance = torch.arange(32) - of_head.argmax(-1)
            is_before = bool((distance[head + 1 :] == head + 1).all())
            assert is_before == (layer < 2), (layer, head)


def follow(model: GPT, ids: torch.Tensor) -> list[torch.Tensor]:
    """The attention weights of every block, as its equation says: (nh, T, T) each."""
    found = []
    hs = model.cfg.head_size
    x = model.token_embedding(ids) + model.position_embedding.weight
    causal = torch.ones(len(ids), len(ids)).tril().log()
    for block in model.blocks:
        attended = block.ln_1(x) if model.cfg.norm == "pre" else x
        q, k, _ = (block.attn.qkv.weight @ attended.T + block.attn.qkv.bias[:, None]).T.chunk(3, dim=1)
        q, k = (rows.view(len(ids), -1, hs).transpose(0, 1) for rows in (q, k))
        scale = 1 / math.sqrt(hs) if model.cfg.scale_attention else 1.0
        found.append((q @ k.mT * scale + causal).softmax(-1))
        x = block(x[None])[0]
    return found


@pytest.mark.parametrize("position", ["learned", "sinusoidal", "none"])
def test_previous_changes_only_embeddings_and_the_queries_and_keys_of_the_first_two_blocks(position):
    changed = {f"blocks.{layer}.attn.qkv.weight" for layer in (0, 1)}
    changed |= {"token_embedding.weight", "position_embedding.weight"}
    changed = changed if position == "learned" else set()
    zero, previous = (fresh(init=init, position=position, n_layer=3) for init in ("zero", "previous"))
    theirs = dict(previous.named_parameters())
    assert {name for name, p in zero.named_parameters() if not torch.equal(p, theirs[name])} == changed
    values = [model.blocks[0].attn.qkv.weight.chunk(3)[2] for model in (zero, previous)]
    assert torch.equal(*values)
    if position == "learned":
        signs = np.tile([1, 1, -1, -1], 16)
        expected = math.sqrt(2) * signs * numpy_gpt.sinusoids(32, 64)
        np.testing.assert_allclose(theirs["position_embedding.weight"].detach(), expected, atol=1e-6)


EVERY_SHAPE = [(heads, heads * size) for heads in range(1, 13) for size in range(1, 97) if heads * size <= 96]


def test_with_previous_no_row_of_a_head_is_zero_or_the_copy_of_another():
    for heads, width in EVERY_SHAPE:
        model = fresh(8, init="previous", n_head=heads, n_embd=width)
        assert bool(model(torch.arange(8)[None]).isfinite().all())
        for block in model.blocks[:2]:
            queries, keys, _ = block.attn.qkv.weight.detach().view(3, heads, width // heads, width)
            for rows in (*queries, *keys):
                assert bool((rows != 0).any(dim=1).all()), (heads, width)
                assert len(rows.unique(dim=0)) == len(rows), (heads, width)


@pytest.mark.parametrize("n_layer", [1, 8])
def test_gpt2_weights_are_spread_as_transformers_spreads_those_of_its_gpt2(n_layer):
    from transformers import GPT2Config, GPT2LMHeadModel

    shape = {"n_layer": n_layer, "n_head": 2, "n_embd": 64}
    torch.manual_seed(0)
    config = GPT2Config(**shape, vocab_size=300, n_positions=32, tie_word_embeddings=False)
    theirs = dict(GPT2LMHeadModel(config).named_parameters())
    for name, p in fresh(init="gpt2", **shape).named_parameters():
        expected = theirs.pop(gpt2_name(name))
        if p.ndim == 1:
            assert torch.equal(p, expected), name
            continue
        std = 0.02 / math.sqrt(2 * n_layer) if name.endswith(("proj.weight", "down.weight")) else 0.02
        assert_normal(p, std, name)
        assert_normal(expected, std, name)
    assert not theirs


def test_torch_weights_are_those_that_its_layers_draw_from_the_same_seed():
    torch.manual_seed(0)
    C, V = 64, 300
    layers = [nn.Embedding(V, C), nn.Embedding(32, C)]
    for _ in range(2):
        layers += [nn.LayerNorm(C), nn.Linear(C, 3 * C), nn.Linear(C, C)]
        layers += [nn.LayerNorm(C), nn.Linear(C, 4 * C), nn.Linear(4 * C, C)]
    layers += [nn.LayerNorm(C), nn.Linear(C, V, bias=False)]
    expected = [p for layer in layers for p in layer.parameters()]
    for (name, p), theirs in zip(fresh(init="torch").named_parameters(), expected, strict=True):
        torch.testing.assert_close(p, theirs, rtol=1e-6, atol=0, msg=name)


def test_a_head_that_shares_the_embedding_starts_as_the_embedding():
    for init, std in (("zero", 0.02), ("previous", 64**-0.5), ("gpt2", 0.02), ("torch", 1.0)):
        model = fresh(init=init, tie_weights=True)
        assert model.head.weight is model.token_embedding.weight
        assert_normal(model.head.weight, std, init)
