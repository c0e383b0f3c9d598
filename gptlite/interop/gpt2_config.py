"""What a GPT-2's config.json says of its model, as a section of ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gptlite.config.schema import ModelSection
from gptlite.errors import ConfigError, Problem
from gptlite.model.activations import ACTIVATIONS

_ACTIVATIONS = {each.gpt2_name: name for name, each in ACTIVATIONS.items()} | {"gelu_pytorch_tanh": "gelu"}
# Values that a key must have, where it is there at all.
_ONLY: Mapping[str, tuple[Any, ...]] = {
    "activation_function": tuple(_ACTIVATIONS),
    "layer_norm_epsilon": (1e-5,),
    "scale_attn_by_inverse_layer_idx": (False,),
    "reorder_and_upcast_attn": (False,),
    "add_cross_attention": (False,),
}
_SIZES = {"n_layer": "n_layer", "n_head": "n_head", "n_embd": "n_embd", "n_positions": "block_size"}


def read_section(config: Mapping[str, Any], where: str) -> ModelSection:
    """Return the model that a config.json describes, without dropout. ConfigError with every problem."""
    kind = config.get("model_type")
    if kind != "gpt2":
        raise ConfigError(f"model_type is {kind!r}, and only gpt2 can be read. Use a GPT-2.", where)
    problems = [
        f"{key} is {config[key]!r}, which cannot be read. Use a model with {' or '.join(map(repr, values))}."
        for key, values in _ONLY.items()
        if key in config and config[key] not in values
    ]
    problems += [
        f"{key} is {config.get(key)!r}, which is no whole number above 0."
        for key in _SIZES
        if type(config.get(key)) is not int or config[key] < 1
    ]
    width, inner = config.get("n_embd"), config.get("n_inner")
    if inner is not None and type(width) is int and inner != 4 * width:
        problems.append(f"n_inner is {inner}, and only {4 * width}, 4 times n_embd, can be read.")
    if problems:
        raise ConfigError([Problem(problem, where) for problem in problems])
    computed = {
        "activation": _ACTIVATIONS[config.get("activation_function", "gelu_new")],
        "bias": True,
        "scale_attention": config.get("scale_attn_weights", True),
        "tie_weights": config.get("tie_word_embeddings", True),
    }
    return ModelSection.model_validate({ours: config[theirs] for theirs, ours in _SIZES.items()} | computed)
