"""Sizes by arithmetic against a built model: its tensors, what autograd saves, what is alive during a pass."""

from __future__ import annotations

import weakref
from collections import Counter
from typing import get_args

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from gptlite.config.schema import ModelSection
from gptlite.model.dropout import DropoutMasks
from gptlite.model.gpt import GPT, nll_sum
from gptlite.model.sizes import (
    BF16,
    WORD,
    count_hidden,
    count_parameters,
    count_tensors,
    held_by_scoring,
    held_by_training,
    kept_by_forward,
    largest_block_product_flops,
)

VOCAB, ROWS = 61, 24
CHOICES = {key: get_args(ModelSection.model_fields[key].annotation) for key in ("activation", "norm", "position")}

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
    assert count_tensors(cfg) == len(list(model.parameters()))
    assert count_hidden(cfg) == sum(p.numel() for p in model.blocks.parameters() if p.ndim == 2)


PASSES = [
    *(({"activation": activation}, "fused", "fp32") for activation in CHOICES["activation"]),
    ({"norm": "post", "bias": True}, "fused", "fp32"),
    ({"position": "none", "tie_weights": False}, "batched", "fp32"),
    ({"dropout": 0.1}, "fused", "fp32"),
    ({"dropout": 0.1, "activation": "gelu"}, "batched", "fp32"),
    *(({f"{place}_dropout": 0.1}, "batched", "fp32") for place in ("embedding", "attention", "residual")),
    ({"embedding_dropout": 0.1, "residual_dropout": 0.1}, "fused", "fp32"),
    ({"bias": ["proj", "norm"], "scale_embeddings": True, "position": "sinusoidal"}, "fused", "fp32"),
    ({"bias": ["qkv", "mlp"], "scale_embeddings": True}, "batched", "bf16"),
    *((variant, "batched", precision) for variant in VARIANTS for precision in WORD),
    *(({**variant, "dropout": 0.1, "activation": "relu"}, "batched", "fp32") for variant in VARIANTS),
    ({}, "fused", "bf16"),
    ({}, "batched", "bf16"),
]


def built(cfg: ModelSection, attention: str, vocab_size: int) -> tuple[GPT, torch.Tensor]:
    """A model, and a batch of token ids for it."""
    idx = torch.randint(0, vocab_size, (ROWS, cfg.block_size), generator=torch.Generator().manual_seed(0))
    return GPT(cfg, vocab_size, attention=attention), idx


@pytest.mark.parametrize(("values", "attention", "precision"), PASSES)
def test_the_formula_counts_what_autograd_saves_in_a_forward_pass(values, attention, precision):
    cfg = section(**values)
    model, idx = built(cfg, attention, VOCAB)
    kept: dict[int, torch.UntypedStorage] = {}  # holding them, so that no address is used twice

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage
        return tensor

    dropout_masks = DropoutMasks(1) if any(cfg.dropouts) else None
    bf16 = torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16")
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor), bf16:
        logits = model(idx, dropout_masks=dropout_masks)
    for p in model.parameters():
        kept.pop(p.untyped_storage().data_ptr(), None)
    found = sum(storage.nbytes() for storage in kept.values())
    copies = BF16 * (count_hidden(cfg) + VOCAB * cfg.n_embd) if precision == "bf16" else 0
    assert logits.shape == (*idx.shape, VOCAB)
    assert found == idx.numel() * kept_by_forward(cfg, attention, WORD[precision]) + copies


class Held(TorchDispatchMode):
    """Peak bytes of the live tensors that operations made."""

    def __init__(self, model: GPT) -> None:
        super().__init__()
        self.most = self._now = 0
        self._known = {p.untyped_storage().data_ptr() for p in model.parameters()}
        self._alive: set[int] = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, torch.Tensor):
                self._meet(tensor.untyped_storage())
        self.most = max(self.most, self._now)
        return made

    def _meet(self, storage: torch.UntypedStorage) -> None:
        key, size = storage.data_ptr(), storage.nbytes()
        if key in self._known or key in self._alive or not size:
            return
        self._alive.add(key)
        self._now += size
        weakref.finalize(storage, self._part, key, size)

    def _part(self, key: int, size: int) -> None:
        self._alive.discard(key)
        self._now -= size


# Cases for each moment that can be the peak: the head; the feed-forward; attention with its weights.
PEAKS = [
    ({}, "fused", 200),
    *(({"activation": activation}, "fused", 5) for activation in CHOICES["activation"]),
    ({"block_size": 128, "n_head": 4}, "batched", 5),
    *((variant, "batched", 5) for variant in VARIANTS),
    ({"variant": "no_feed_forward"}, "fused", 5),
    *(({**variant, "block_size": 128, "n_head": 4}, "batched", 5) for variant in VARIANTS),
    ({"block_size": 128, "n_head": 4, "dropout": 0.1}, "batched", 5),
    ({"block_size": 128, "n_head": 4, "attention_dropout": 0.1}, "batched", 5),
    ({"block_size": 128, "n_head": 4, "residual_dropout": 0.1}, "batched", 5),
]


@pytest.mark.parametrize(("values", "attention", "vocab_size"), PEAKS)
def test_the_formula_gives_the_peak_of_a_training_pass_without_gradients(values, attention, vocab_size):
    cfg = section(**values)
    model, idx = built(cfg, attention, vocab_size)
    with Held(model) as held:
        nll_sum(model(idx, dropout_masks=DropoutMasks(1) if any(cfg.dropouts) else None), idx).backward()
    expected = idx.numel() * held_by_training(cfg, vocab_size, attention, 4)
    gradients = 4 * model.n_parameters()  # those that are there by then
    assert expected * 0.98 <= held.most <= expected * 1.02 + gradients


@pytest.mark.parametrize(("values", "attention", "vocab_size"), PEAKS)
def test_the_formula_gives_the_peak_of_scoring(values, attention, vocab_size):
    cfg = section(**values)
    model, idx = built(cfg, attention, vocab_size)
    with torch.no_grad(), Held(model) as held:
        logits = None
        for _ in range(2):
            logits = model(idx)
            nll_sum(logits, idx)
    most = held_by_scoring(cfg, vocab_size, attention, 4)
    assert held.most == pytest.approx(idx.numel() * most, rel=0.15)


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
