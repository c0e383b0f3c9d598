"""Parameters and operations by arithmetic against a built model."""

from __future__ import annotations

from collections import Counter
from typing import get_args

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from gptlite.config.schema import ModelSection
from gptlite.model.gpt import GPT
from gptlite.model.sizes import count_hidden, count_parameters, largest_block_product_flops

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


def section(**values) -> ModelSection:
    return ModelSection(**{"n_layer": 2, "n_head": 2, "n_embd": 16, "block_size": 16, **values})


def random_section(seed: int) -> ModelSection:
    rng = np.random.default_rng(seed)
    n_head = int(rng.integers(1, 4))
    return section(
        n_layer=int(rng.integers(1, 4)),
        n_head=n_head,
        n_embd=n_head * 4 * int(rng.integers(1, 4)),
        block_size=int(rng.integers(1, 20)),
        norm=str(rng.choice(CHOICES["norm"])),
        position=str(rng.choice(CHOICES["position"])),
        bias=BIASES[int(rng.integers(len(BIASES)))],
        tie_weights=bool(rng.integers(2)),
    )


VARIANTS = [
    {"variant": "no_residual", "init": "gpt2"},
    *({"variant": variant} for variant in ("no_feed_forward", "no_norm", "no_mask")),
]


@pytest.mark.parametrize(
    "cfg", [*map(random_section, range(24)), *(section(**v, bias=bias) for v in VARIANTS for bias in (True, False))]
)
def test_parameters_by_part_are_those_of_the_model(cfg):
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
