"""Parameters and operations by arithmetic against a built model."""

from __future__ import annotations

from collections import Counter
from typing import get_args

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from gptlite.config.schema import ModelSection
from gptlite.model.gpt import GPT
from gptlite.model.sizes import count_hidden, count_parameters, largest_block_product_flops
from gptlite.model.variants import BLOCKS

VOCAB = 61
CHOICES = {key: get_args(ModelSection.model_fields[key].annotation) for key in ("norm", "position")}

BIASES = [True, False, ["qkv"], ["proj"], ["mlp"], ["norm"], ["proj", "mlp", "norm"]]

PARTS = {
    "token_embedding": "embeddings",
    "position_embedding": "positions",
    "attn": "attention",
    "mlp": "feed_forward",
    "ln_1": "norms",
    "ln_2": "norms",
    "ln_f": "norms",
    "head": "head",
}


SECTIONS = [
    {},
    {"n_layer": 3, "n_head": 3, "n_embd": 36, "block_size": 19},
    *({key: value, "bias": bias} for key, values in CHOICES.items() for value in values for bias in BIASES),
    *({"tie_weights": False, "bias": bias} for bias in BIASES),
    *({"variant": variant, "init": "gpt2", "bias": bias} for variant in BLOCKS if variant for bias in (True, False)),
]


@pytest.mark.parametrize("values", SECTIONS, ids=str)
def test_parameters_by_part_are_those_of_the_model(values):
    cfg = ModelSection(**{"n_layer": 2, "n_head": 2, "n_embd": 16, "block_size": 16, **values})
    model = GPT(cfg, VOCAB)
    found = Counter()
    for name, p in model.named_parameters():
        path = name.split(".")
        found[PARTS[path[2] if path[0] == "blocks" else path[0]]] += p.numel()
    counted = count_parameters(cfg, VOCAB)
    assert {part: number for part, number in vars(counted).items() if number} == dict(found)
    assert counted.total == model.n_parameters()
    assert count_hidden(cfg) == sum(p.numel() for p in model.blocks.parameters() if p.ndim == 2)


@pytest.mark.parametrize(("variant", "flops"), [(None, 49_152), ("no_feed_forward", 36_864)])
def test_the_largest_product_of_a_block_is_that_of_the_feed_forward_or_without_one_of_q_k_and_v(variant, flops):
    """By hand, of 24 tokens: 2 * 24 * 16 * 64 = 49,152 and 2 * 24 * 16 * 48 = 36,864; and as torch counts a block's."""
    cfg = ModelSection(n_layer=1, n_head=1, n_embd=16, block_size=24, variant=variant)
    assert largest_block_product_flops(cfg, 24) == flops
    counts = []
    for layer in (module for module in GPT(cfg, VOCAB).blocks.modules() if isinstance(module, torch.nn.Linear)):
        with FlopCounterMode(display=False) as counter:
            layer(torch.ones(24, layer.in_features))
        counts.append(counter.get_total_flops())
    assert max(counts) == flops
