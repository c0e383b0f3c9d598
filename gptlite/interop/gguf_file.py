"""A model as a GGUF file, which llama.cpp and what is built on it run as a GPT-2.

llama.cpp's GPT-2 (src/models/gpt2.cpp) has GELU, biases everywhere and scores divided by sqrt(head size). Missing
biases are zeros, and another scale goes into the queries. ReLU is GELU of very large numbers: with k a power of two,
GELU(k x) / k differs from ReLU(x) by at most 0.17 / k, so `up` is multiplied by k and `down` divided by it.

Its tokenizer is a byte-level BPE that divides text by one of some sixty patterns, which have names but no text. GPT-2's
is the one that gptlite has too. Characters are a BPE whose merges join the bytes of one character.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from torch import Tensor

from gptlite.config.schema import ModelSection
from gptlite.errors import ConfigError
from gptlite.inference.language_model import LanguageModel
from gptlite.model.gpt import GPT
from gptlite.model.gpt2_layout import from_gpt2, to_gpt2, transposed
from gptlite.tokenizers.base import Tokenizer
from gptlite.tokenizers.bpe import PATTERNS, BpeTokenizer
from gptlite.tokenizers.char import CharTokenizer
from gptlite.tokenizers.folder import END_OF_TEXT
from gptlite.tokenizers.huggingface import find_merges, to_characters

# By --type: how matrices are stored, and k. Halves are finite below 65,536, and eight bits have scales that are halves:
# a larger k would take `down` below the smallest that they express well.
TYPES = {
    "f32": (gguf.GGMLQuantizationType.F32, gguf.LlamaFileType.ALL_F32, 65536.0),
    "f16": (gguf.GGMLQuantizationType.F16, gguf.LlamaFileType.MOSTLY_F16, 256.0),
    "q8_0": (gguf.GGMLQuantizationType.Q8_0, gguf.LlamaFileType.MOSTLY_Q8_0, 64.0),
}
Q8_BLOCK = 32  # numbers that share a scale


def gguf_names(n_layer: int) -> Callable[[str], str]:
    """Return what maps GPT-2's names of tensors to llama.cpp's."""
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.GPT2, n_layer)
    return lambda name: str(names.get_name(name, (".weight", ".bias")))


def as_llama(model: GPT, k: float) -> dict[str, Tensor]:
    """Return the tensors of a GPT-2 with GELU and scaled scores that computes the same, by GPT-2's names."""
    cfg, tensors = model.cfg, to_gpt2(model)
    for name, tensor in tensors.items():
        if cfg.activation == "relu" and ".mlp.c_fc." in name:
            tensors[name] = tensor * k
        if cfg.activation == "relu" and name.endswith(".mlp.c_proj.weight"):
            tensors[name] = tensor / k
        if not cfg.scale_attention and ".attn.c_attn." in name:
            of_queries = torch.ones(3 * cfg.n_embd)  # the last axis: queries, keys, values
            of_queries[: cfg.n_embd] = math.sqrt(cfg.head_size)
            tensors[name] = tensor * of_queries
    return tensors


def vocabulary(tokenizer: Tokenizer) -> tuple[list[str], list[gguf.TokenType], list[str]]:
    """Return the spelling and type of each id, and the merges. ConfigError for a pattern that llama.cpp lacks."""
    if isinstance(tokenizer, BpeTokenizer):
        if tokenizer.kind != "gpt2" and tokenizer.pattern != PATTERNS["gpt2"]:
            raise ConfigError(
                "llama.cpp cannot divide text as this tokenizer does. Train with tokenizer.pattern=gpt2, or with "
                "tokenizer.kind=char."
            )
        tokens, pairs = list(tokenizer.ranks), list(find_merges(tokenizer.ranks))
    else:
        assert isinstance(tokenizer, CharTokenizer)
        tokens = [character.encode() for character in tokenizer.characters]
        grown = {(token[:n], token[n : n + 1]): None for token in tokens for n in range(1, len(token))}
        pairs = list(grown) or [(b"\xff", b"\xff")]  # which no UTF-8 has: llama.cpp refuses a file without merges
    spelled = list(map(to_characters, tokens))
    unused = [f"[PAD{i}]" for i in range(len(tokens), tokenizer.eot_id)]
    types = [gguf.TokenType.NORMAL] * len(tokens) + [gguf.TokenType.UNUSED] * len(unused) + [gguf.TokenType.CONTROL]
    merges = [f"{to_characters(left)} {to_characters(right)}" for left, right in pairs]
    return [*spelled, *unused, END_OF_TEXT], types, merges


def write_gguf(path: Path, model: LanguageModel, kind: str, name: str, about: str) -> None:
    """Write a new file. kind: one of TYPES. name, about: of the model. OSError where it cannot be written.

    ConfigError for a model or tokenizer that llama.cpp cannot express.
    """
    cfg, tokenizer = model.gpt.cfg, model.tokenizer
    tokens, types, merges = vocabulary(tokenizer)
    stored, file_type, k = TYPES[kind]
    if kind == "q8_0" and cfg.n_embd % Q8_BLOCK:
        raise ConfigError(f"q8_0 needs a model.n_embd that is a multiple of {Q8_BLOCK}, not {cfg.n_embd}. Use f16.")
    writer = gguf.GGUFWriter(path, "gpt2")
    writer.add_name(name)
    writer.add_description(about)
    writer.add_context_length(cfg.block_size)
    writer.add_embedding_length(cfg.n_embd)
    writer.add_block_count(cfg.n_layer)
    writer.add_feed_forward_length(4 * cfg.n_embd)
    writer.add_head_count(cfg.n_head)
    writer.add_layer_norm_eps(1e-5)
    writer.add_file_type(file_type)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(tokenizer.eot_id)
    writer.add_eos_token_id(tokenizer.eot_id)
    writer.add_add_bos_token(False)  # as a prompt of gptlite has none
    gguf_name = gguf_names(cfg.n_layer)
    for key, tensor in as_llama(model.gpt, k).items():
        array = transposed(key, tensor).contiguous().numpy()  # llama.cpp has (out, in)
        is_rounded = array.ndim == 2 and not key.endswith("wpe.weight")  # llama.cpp's own tool keeps positions, too
        as_stored = stored if is_rounded else gguf.GGMLQuantizationType.F32
        writer.add_tensor(gguf_name(key), gguf.quantize(array, as_stored), raw_dtype=as_stored)
    try:
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    finally:
        writer.close()


def read_gguf(path: Path, cfg: ModelSection, vocab_size: int) -> GPT:
    """Return the model that llama.cpp computes from a file of ours, in fp32. cfg: of the model that was written."""
    read: dict[str, Any] = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    tied = "output.weight" not in read
    as_computed = {"activation": "gelu", "bias": True, "position": "learned", "scale_attention": True}
    model = GPT(cfg.model_copy(update={**as_computed, "tie_weights": tied}), vocab_size)
    tensors, gguf_name = {}, gguf_names(cfg.n_layer)
    for name, parameter in to_gpt2(model).items():
        stored = read[gguf_name(name)]
        array = torch.from_numpy(np.array(gguf.dequantize(stored.data, stored.tensor_type)))
        tensors[name] = transposed(name, array).view(parameter.shape)
    from_gpt2(tensors, model)
    return model


def modelfile(name: str, cfg: ModelSection) -> str:
    """Return the Modelfile by which Ollama takes a GGUF file of this name: plain continuation, no chat."""
    lines = [f"FROM ./{name}", 'TEMPLATE "{{ .Prompt }}"', f"PARAMETER num_ctx {cfg.block_size}"]
    return "\n".join([*lines, "PARAMETER temperature 0.8", "PARAMETER repeat_penalty 1"]) + "\n"
