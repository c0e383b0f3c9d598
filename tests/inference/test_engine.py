"""Rows decoded together against rows alone, and against reading every window again without a cache."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from random_gpt import random_gpt
from torch import Tensor

from gptlite.config.schema import ModelSection
from gptlite.inference.engine import DecodingBatch, rows_at_once, store_for_decoding
from gptlite.model.gpt import GPT

V = 7


def gpt(seed: int = 0, vocab_size: int = V, **values) -> GPT:
    return random_gpt(vocab_size, seed, spread=0.1, dtype=torch.float32, **values)


def together(model: GPT, rows: list[list[int]], lengths: list[int]) -> Tensor:
    """Logits after the prompts and each later token of several rows, decoded together: (B, 1 + n_new, V)."""
    n_new = len(rows[0]) - lengths[0]
    batch = DecodingBatch(model, [row[:n] for row, n in zip(rows, lengths, strict=True)], n_new)
    logits = [batch.logits]
    for i in range(n_new):
        batch.read([row[n + i] for row, n in zip(rows, lengths, strict=True)])
        logits.append(batch.logits)
    return torch.stack(logits, dim=1)


@pytest.mark.parametrize("seed", range(200))
def test_rows_together_equal_rows_alone_and_without_a_cache_for_random_shapes_and_ragged_lengths(seed, uncached):
    rng = np.random.default_rng(seed)
    n_head, block_size = int(rng.integers(1, 4)), int(rng.integers(1, 12))
    model = gpt(
        seed,
        n_layer=int(rng.integers(1, 4)),
        n_head=n_head,
        n_embd=n_head * 2 * int(rng.integers(1, 5)),
        block_size=block_size,
        position=str(rng.choice(["learned", "sinusoidal", "none"])),
        norm=str(rng.choice(["pre", "post"])),
        tie_weights=bool(rng.integers(2)),
        scale_attention=bool(rng.integers(2)),
    )
    if rng.integers(2):
        store_for_decoding(model)
    lengths = rng.integers(1, 2 * block_size + 2, int(rng.integers(1, 6))).tolist()
    n_new = int(rng.integers(0, 3 * block_size + 2))
    rows = [rng.integers(0, V, n + n_new).tolist() for n in lengths]
    read = together(model, rows, lengths)
    for row, n, logits in zip(rows, lengths, read, strict=True):
        torch.testing.assert_close(logits, uncached(model, row, n), rtol=0, atol=1e-5)
        torch.testing.assert_close(logits, together(model, [row], [n])[0], rtol=0, atol=1e-5)


@pytest.mark.parametrize("attention", ["plain", "batched", "fused"])
def test_every_attention_path_decodes_rows_of_different_lengths(attention, uncached):
    model = GPT(gpt().cfg, V, attention=attention)
    model.load_state_dict(gpt().state_dict())
    rows = [np.random.default_rng(n).integers(0, V, n + 9).tolist() for n in (1, 5, 8)]
    for row, n, logits in zip(rows, (1, 5, 8), together(model, rows, [1, 5, 8]), strict=True):
        torch.testing.assert_close(logits, uncached(model, row, n), rtol=0, atol=1e-5)


@pytest.mark.parametrize("attention", ["plain", "batched", "fused"])
def test_rows_of_different_lengths_are_not_affected_by_uninitialised_memory(attention):
    model = GPT(gpt().cfg, V, attention=attention, rng=torch.Generator().manual_seed(0))
    torch.set_deterministic_debug_mode("error")  # torch then fills memory that nothing was written to with nan
    try:
        # The fourth place is written by the second row alone, and a mask hides no nan from the first.
        read = together(model, [[1, 2, 3], [1, 2, 3, 4, 5]], [1, 3])
    finally:
        torch.set_deterministic_debug_mode("default")
    assert read.isfinite().all()


def test_selecting_and_copying_rows_does_not_change_the_others(uncached):
    model = gpt().double()
    texts = [np.random.default_rng(n).integers(0, V, n).tolist() for n in (6, 2, 4)]
    batch = DecodingBatch(model, texts, 20)
    tokens = np.random.default_rng(0).integers(0, V, 20).tolist()
    for i, token in enumerate(tokens):
        if i == 3:
            batch.select([2, 1, 1])
            texts = [texts[2], texts[1], texts[1]]
        if i == 9:
            batch.select([1])
            texts = [texts[1]]
        new = [(token + row) % V for row in range(len(texts))]
        batch.read(new)
        texts = [[*text, t] for text, t in zip(texts, new, strict=True)]
    torch.testing.assert_close(batch.logits[0], uncached(model, texts[0], 2)[-1], rtol=0, atol=1e-12)


def test_equal_prompts_are_read_once(monkeypatch):
    model = gpt()
    read = []
    hidden = model.hidden
    monkeypatch.setattr(model, "hidden", lambda idx, **rest: read.append(tuple(idx.shape)) or hidden(idx, **rest))
    batch = DecodingBatch(model, [[1, 2, 3]] * 5, 1)
    batch.read([0, 1, 2, 3, 4])
    assert read == [(1, 3), (5, 1)]
    assert batch.logits.shape == (5, V)


def test_the_memory_of_caches_bounds_the_number_of_rows():
    small = ModelSection(n_layer=6, n_head=6, n_embd=384, block_size=256)  # 4.7 MB a row
    medium = ModelSection(n_layer=12, n_head=12, n_embd=768, block_size=1024)  # 75.5 MB a row
    huge = ModelSection(n_layer=96, n_head=96, n_embd=96 * 128, block_size=8192)  # 77 GB a row
    assert [rows_at_once(cfg) for cfg in (small, medium, huge)] == [64, 14, 1]


@pytest.mark.parametrize("tie_weights", [True, False])
def test_tall_weights_are_stored_by_columns_with_equal_logits(tie_weights):
    plain, stored = (gpt(vocab_size=40, tie_weights=tie_weights) for _ in range(2))
    store_for_decoding(stored)
    block, before = stored.blocks[0], plain.blocks[0]
    for layer in (block.attn.qkv, block.mlp.up, stored.head):
        assert layer.weight.stride() == (1, layer.out_features)
    for layer in (block.attn.proj, block.mlp.down):
        assert layer.weight.stride() == (layer.in_features, 1)
    assert torch.equal(block.mlp.up.weight, before.mlp.up.weight)
    assert (stored.head.weight is stored.token_embedding.weight) == tie_weights
    idx = torch.arange(6)[None]
    torch.testing.assert_close(stored(idx), plain(idx), rtol=0, atol=1e-5)
