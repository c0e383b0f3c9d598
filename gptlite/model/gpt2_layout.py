"""GPT-2's names, shapes and config.json for our parameters, so that Hugging Face opens a checkpoint as it is.

GPT-2 stores its projections as (in, out) and torch's Linear as (out, in), so the four matrices of a block are
transposed. Missing biases and a missing or fixed position table are written out as zeros or as that table, which
computes the same function. Variants that GPT-2 cannot represent are saved as `model_type: gptlite`, which Hugging Face
refuses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from gptlite.config.schema import ModelSection
from gptlite.config.yaml import shown
from gptlite.model.activations import ACTIVATIONS
from gptlite.model.gpt import GPT

RENAMED = {  # parts of names
    "token_embedding": "transformer.wte",
    "position_embedding": "transformer.wpe",
    "blocks": "transformer.h",
    "attn.qkv": "attn.c_attn",
    "attn.proj": "attn.c_proj",
    "mlp.up": "mlp.c_fc",
    "mlp.down": "mlp.c_proj",
    "ln_f": "transformer.ln_f",
    "head": "lm_head",
}


def gpt2_name(name: str) -> str:
    """Return GPT-2's name of a parameter: `blocks.0.attn.qkv.weight` -> `transformer.h.0.attn.c_attn.weight`."""
    for ours, theirs in RENAMED.items():
        name = name.replace(ours, theirs)
    return name


def transposed(name: str, tensor: Tensor) -> Tensor:
    """Turn a projection from torch's (out, in) to GPT-2's (in, out) or back; other tensors stay. name: GPT-2's."""
    return tensor.t() if name.startswith("transformer.h.") and tensor.ndim == 2 else tensor


def to_gpt2(model: GPT) -> dict[str, Tensor]:
    """Return the tensors of a GPT-2 that computes the same logits, by GPT-2's names."""
    cfg = model.cfg
    tensors = {}
    for ours, parameter in model.named_parameters():
        name = gpt2_name(ours)
        tensors[name] = transposed(name, parameter.detach()).contiguous()
    if cfg.position != "learned":
        table = model.position_rows(slice(0, cfg.block_size))
        zeros = torch.zeros(cfg.block_size, cfg.n_embd)
        tensors["transformer.wpe.weight"] = zeros if table is None else table.clone()
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear | torch.nn.LayerNorm) and name != "head":
            tensors.setdefault(gpt2_name(f"{name}.bias"), torch.zeros(module.weight.size(0)))
    return tensors


def from_gpt2(tensors: Mapping[str, Tensor], model: GPT) -> None:
    """Copy tensors that `to_gpt2` made into the model, in place. ValueError for a missing or misshapen one."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            stored = gpt2_name(name)
            if stored not in tensors:
                raise ValueError(f"tensor {stored} is missing")
            tensor = transposed(stored, tensors[stored])
            if tensor.shape != parameter.shape:
                raise ValueError(f"tensor {stored} has shape {tuple(tensor.shape)}, not {tuple(parameter.shape)}")
            parameter.copy_(tensor)


def missing_in_gpt2(cfg: ModelSection) -> list[str]:
    """Return "key=value" of each setting that would have to be another for GPT-2's architecture to have it."""
    instead: dict[str, Any] = {"norm": "pre", "scale_embeddings": False, "variant": None}
    if ACTIVATIONS[cfg.activation].gpt2_name is None:
        instead["activation"] = next(name for name, each in ACTIVATIONS.items() if each.gpt2_name is not None)
    return [f"model.{key}={shown(value)}" for key, value in instead.items() if getattr(cfg, key) != value]


def hf_config(cfg: ModelSection, vocab_size: int, eot_id: int) -> dict[str, Any]:
    """Return a checkpoint's config.json: GPT-2's keys, or `model_type: gptlite` where GPT-2 lacks something."""
    if missing_in_gpt2(cfg):
        return {"model_type": "gptlite", "architectures": ["GPTLite"]}
    return {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "vocab_size": vocab_size,
        "n_positions": cfg.block_size,
        "n_ctx": cfg.block_size,
        "n_embd": cfg.n_embd,
        "n_layer": cfg.n_layer,
        "n_head": cfg.n_head,
        "n_inner": 4 * cfg.n_embd,
        "activation_function": ACTIVATIONS[cfg.activation].gpt2_name,
        "embd_pdrop": cfg.dropouts.embedding,
        "attn_pdrop": cfg.dropouts.attention,
        "resid_pdrop": cfg.dropouts.residual,
        "layer_norm_epsilon": 1e-5,
        "scale_attn_weights": cfg.scale_attention,
        "tie_word_embeddings": cfg.tie_weights,
        "bos_token_id": eot_id,
        "eos_token_id": eot_id,
        "dtype": "float32",
    }


def generation_config(cfg: ModelSection, eot_id: int, suppressed: Sequence[int]) -> dict[str, Any]:
    """Return generation_config.json of a checkpoint. suppressed: ids that are never generated.

    max_length is block_size: past it, Hugging Face's GPT-2 indexes out of its position table.
    """
    ids = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), eot_id)
    return {"max_length": cfg.block_size, **ids, **({"suppress_tokens": list(suppressed)} if suppressed else {})}
