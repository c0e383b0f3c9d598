"""The model against tests/numpy_gpt.py: logits, gradients and dropout for every key of the section `model`."""

from __future__ import annotations

import itertools
from typing import get_args

import numpy as np
import numpy_gpt
import pytest
import torch

from gptlite.config.schema import ModelSection
from gptlite.model.dropout import DropoutMasks
from gptlite.model.gpt import GPT
from gptlite.model.loss import nll_sum
from gptlite.model.variants import BLOCKS

SMALL = {"n_layer": 2, "n_head": 2, "n_embd": 8, "block_size": 12}
PLACES = ("qkv", "proj", "mlp", "norm")
SCHEMES = [list(chosen) for n in range(1, 5) for chosen in itertools.combinations(PLACES, n)]


def choices(key: str) -> tuple[str, ...]:
    return get_args(ModelSection.model_fields[key].annotation)


# Every value of every key that changes the function, and what may be confused: each with both kinds of norm.
VALUES = [
    {},
    {"n_layer": 1},
    {"n_head": 1},
    {"n_embd": 12},
    {"block_size": 10},
    *({"activation": name} for name in choices("activation")),
    *({"position": name, "scale_embeddings": scaled} for name in choices("position") for scaled in (True, False)),
    *({"position": "sinusoidal", "init": name, "scale_embeddings": False} for name in choices("init")),
    {"scale_attention": False},
    {"tie_weights": False},
    {"tie_weights": False, "position": "none", "scale_attention": False, "scale_embeddings": True},
    *({"bias": scheme} for scheme in SCHEMES),
    {"bias": False},
]
WITHOUT = [
    {"variant": "no_residual", "init": "gpt2"},
    *({"variant": variant} for variant in ("no_feed_forward", "no_norm", "no_mask")),
]
VARIANTS = [{"bias": True, "norm": norm, **values} for values in VALUES for norm in choices("norm")]
VARIANTS += [{"bias": bias, **without} for without in WITHOUT for bias in (True, ["qkv"])]


def perturbed(attention: str = "fused", **values) -> GPT:
    """A model in fp64 whose weights are all random, those that begin as 0 or 1 too."""
    rng = torch.Generator().manual_seed(0)
    model = GPT(ModelSection(**{**SMALL, **values}), 11, attention=attention, rng=rng).double()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.3 * torch.randn(p.shape, dtype=p.dtype, generator=rng))
    if model.cfg.position == "sinusoidal":  # in fp32 the table has its sines to 1e-7 only
        keys = model.cfg.model_dump()
        table = torch.from_numpy(numpy_gpt.position_table({}, keys, model.cfg.block_size))
        torch.testing.assert_close(model.position_table, table, rtol=0, atol=1e-7)
        model.position_table = table
    return model


def weights(model: GPT) -> dict[str, np.ndarray]:
    return {name: p.detach().numpy().copy() for name, p in model.named_parameters()}


def random_ids(n: int) -> torch.Tensor:
    return torch.randint(11, (n,), generator=torch.Generator().manual_seed(0))


def drawn_from(masks: DropoutMasks) -> numpy_gpt.Drop:
    """Dropout by the masks of a model, in order; a place without dropout draws none."""

    def drop(x: np.ndarray, p: float) -> np.ndarray:
        if p == 0.0:
            return x
        return np.where(masks.dropped(x.shape, p), 0.0, x / (1 - p))

    return drop


@pytest.mark.parametrize("values", VARIANTS, ids=str)
def test_logits_are_those_of_the_equations(values):
    model, ids = perturbed(**values), random_ids(10)
    expected = numpy_gpt.logits(weights(model), model.cfg.model_dump(), ids.numpy())
    np.testing.assert_allclose(model(ids[None])[0].detach().numpy(), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("attention", ["plain", "batched", "fused"])
@pytest.mark.parametrize(
    "values",
    [
        {},
        *({key: value} for key in ("norm", "activation", "position") for value in choices(key)),
        {"bias": ["proj", "mlp", "norm"], "tie_weights": False},
        {"scale_embeddings": True, "scale_attention": False},
        *WITHOUT,
    ],
    ids=str,
)
def test_gradients_are_the_finite_differences_of_the_equations(values, attention):
    model, ids = perturbed(attention, **{"bias": True, **values}), random_ids(7)
    nll_sum(model(ids[None, :-1]), ids[None, 1:]).backward()
    w, keys, rng, step = weights(model), model.cfg.model_dump(), np.random.default_rng(0), 1e-5
    for name, parameter in model.named_parameters():
        direction = rng.standard_normal(w[name].shape)
        sides = [numpy_gpt.loss({**w, name: w[name] + sign * step * direction}, keys, ids.numpy()) for sign in (1, -1)]
        found = (parameter.grad.numpy() * direction).sum()
        assert found == pytest.approx((sides[0] - sides[1]) / (2 * step), rel=1e-6, abs=1e-6), name


DROPOUTS = [
    {"dropout": 0.25},
    {"embedding_dropout": 0.25},
    {"attention_dropout": 0.25},
    {"residual_dropout": 0.25},
    {"dropout": 0.25, "embedding_dropout": 0.0},
    {"dropout": 0.25, "attention_dropout": 0.0, "residual_dropout": 0.5},
    {"embedding_dropout": 0.1, "attention_dropout": 0.25, "residual_dropout": 0.5},
]


@pytest.mark.parametrize("values", DROPOUTS, ids=str)
@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("attention", ["plain", "batched", "fused"])
def test_dropout_acts_at_its_places_and_at_no_other(values, norm, attention):
    model, ids = perturbed(attention, bias=True, norm=norm, **values), random_ids(10)
    w, keys = weights(model), model.cfg.model_dump()
    expected = numpy_gpt.logits(w, keys, ids.numpy(), drawn_from(DropoutMasks(5)))
    found = model(ids[None], dropout_masks=DropoutMasks(5))[0].detach().numpy()
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)
    assert not np.allclose(expected, numpy_gpt.logits(w, keys, ids.numpy()))


# By key: two values between which something must change, and what else they need.
FLIPPED = {
    "n_layer": (2, 3, {}),
    "n_head": (2, 4, {}),
    "n_embd": (8, 16, {}),
    "block_size": (12, 13, {}),
    "dropout": (0.0, 0.5, {}),
    "embedding_dropout": (None, 0.5, {}),
    "attention_dropout": (None, 0.5, {}),
    "residual_dropout": (None, 0.5, {}),
    "activation": ("relu", "gelu", {}),
    "norm": ("pre", "post", {}),
    "position": ("learned", "none", {}),
    "scale_embeddings": (False, True, {}),
    "scale_attention": (True, False, {}),
    "bias": (["qkv"], ["norm"], {}),
    "tie_weights": (True, False, {}),
    "init": ("gpt2", "torch", {}),
    "variant": (None, "no_residual", {"init": "gpt2"}),
}


def test_every_key_is_flipped_and_every_variant_has_its_equations():
    assert set(FLIPPED) == set(ModelSection.model_fields)
    assert {values["variant"] for values in WITHOUT} == set(BLOCKS) - {None}
    assert set(BLOCKS) == {None, *get_args(get_args(ModelSection.model_fields["variant"].annotation)[0])}


@pytest.mark.parametrize("key", FLIPPED)
def test_every_key_acts(key):
    *values, others = FLIPPED[key]

    def outcome(value: object) -> list[np.ndarray]:
        """The weights that a model begins with, and its logits on training text once they are all random."""
        cfg = {**SMALL, **others, key: value}
        fresh = GPT(ModelSection(**cfg), 11, rng=torch.Generator().manual_seed(0))
        logits = perturbed(**cfg)(random_ids(10)[None], dropout_masks=DropoutMasks(0))
        return [*(p.detach().numpy() for p in fresh.parameters()), logits.detach().numpy()]

    first, second = map(outcome, values)
    assert len(first) != len(second) or any(
        a.shape != b.shape or not np.array_equal(a, b) for a, b in zip(first, second, strict=True)
    )
