"""Our tensors <-> the names and orientation of GPT-2 on disk, so that Hugging Face opens a checkpoint as it is.

GPT-2 stores its projections as (in, out), torch's Linear as (out, in): the four matrices of a block are transposed.
What we leave out (biases, a learned position table) is written as zeros or as the fixed table, which computes
the same function. Post-LN has no GPT-2 form: it is saved under `model_type: gptlite`, which others refuse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from gptlite.config.schema import ModelSection
from gptlite.model.gpt import GPT

FORMAT_VERSION = 1
OUTSIDE_BLOCKS = {
    "token_embedding.weight": "transformer.wte.weight",
    "position_embedding.weight": "transformer.wpe.weight",
    "ln_f": "transformer.ln_f",
    "head.weight": "lm_head.weight",
}
IN_BLOCK = {
    "ln_1": "ln_1",
    "attn.qkv": "attn.c_attn",
    "attn.proj": "attn.c_proj",
    "ln_2": "ln_2",
    "mlp.up": "mlp.c_fc",
    "mlp.down": "mlp.c_proj",
}
TRANSPOSED = ("attn.qkv", "attn.proj", "mlp.up", "mlp.down")


def gpt2_name(name: str) -> str:
    """`blocks.0.attn.qkv.weight` -> `transformer.h.0.attn.c_attn.weight`, and so on."""
    if name in OUTSIDE_BLOCKS:
        return OUTSIDE_BLOCKS[name]
    if name.startswith("ln_f."):
        return f"{OUTSIDE_BLOCKS['ln_f']}.{name.removeprefix('ln_f.')}"
    _, layer, rest = name.split(".", 2)
    module, leaf = rest.rsplit(".", 1)
    return f"transformer.h.{layer}.{IN_BLOCK[module]}.{leaf}"


def _is_transposed(name: str) -> bool:
    return name.endswith(".weight") and name.removesuffix(".weight").endswith(TRANSPOSED)


def to_gpt2(model: GPT) -> dict[str, Tensor]:
    """The model's parameters in GPT-2's form; computes the same logits there."""
    cfg = model.cfg
    out = {}
    for name, parameter in model.named_parameters():
        tensor = parameter.detach()
        out[gpt2_name(name)] = tensor.t().contiguous() if _is_transposed(name) else tensor
    if cfg.position != "learned":
        table = model.positions(slice(0, cfg.block_size))
        empty = torch.zeros(cfg.block_size, cfg.n_embd)
        out["transformer.wpe.weight"] = table.clone() if table is not None else empty
    if not cfg.bias:
        for name, module in model.named_modules():
            if isinstance(module, torch.nn.Linear | torch.nn.LayerNorm) and name != "head":
                width = module.weight.size(0)
                out[gpt2_name(f"{name}.bias")] = torch.zeros(width)
    return out


def from_gpt2(tensors: Mapping[str, Tensor], model: GPT) -> None:
    """Copy what `to_gpt2` wrote into `model`, in place. A missing or misshapen tensor raises ValueError."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            there = gpt2_name(name)
            if there not in tensors:
                raise ValueError(f"tensor {there} is missing")
            tensor = tensors[there].t() if _is_transposed(name) else tensors[there]
            if tensor.shape != parameter.shape:
                raise ValueError(f"tensor {there} has shape {tuple(tensor.shape)}, not {tuple(parameter.shape)}")
            parameter.copy_(tensor)


def hf_config(cfg: ModelSection, vocab_size: int, eot_id: int) -> dict[str, Any]:
    """config.json of a checkpoint: GPT-2's keys, or `model_type: gptlite` where GPT-2 cannot say it."""
    if cfg.norm == "post":
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
        "activation_function": "relu" if cfg.activation == "relu" else "gelu_new",
        "embd_pdrop": cfg.dropout,
        "attn_pdrop": cfg.dropout,
        "resid_pdrop": cfg.dropout,
        "layer_norm_epsilon": 1e-5,
        "scale_attn_weights": cfg.scale_attention,
        "tie_word_embeddings": cfg.tie_weights,
        "bos_token_id": eot_id,
        "eos_token_id": eot_id,
        "dtype": "float32",
    }


def generation_config(cfg: ModelSection, eot_id: int, suppressed: Sequence[int]) -> dict[str, Any]:
    """generation_config.json: GPT-2 in Hugging Face indexes out of its position table past max_length.

    barred: ids that are never written.
    """
    suppressed_ids = {"suppress_tokens": list(suppressed)} if suppressed else {}
    return {
        "max_length": cfg.block_size,
        "bos_token_id": eot_id,
        "eos_token_id": eot_id,
        "pad_token_id": eot_id,
        **suppressed_ids,
    }
