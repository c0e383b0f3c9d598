"""A model and its tokenizer as plain data for a page that writes: rounded weights in base64, tokens, a pattern."""

from __future__ import annotations

import base64
import copy
import re
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from gptlite.errors import ConfigError
from gptlite.inference.language_model import LanguageModel
from gptlite.model.gpt import GPT
from gptlite.model.gpt2_layout import from_gpt2, to_gpt2, transposed
from gptlite.tokenizers.base import Tokenizer
from gptlite.tokenizers.bpe import PATTERNS, BpeTokenizer

MOST_PARAMETERS = 20_000_000  # a page of about 50 MB
# JavaScript's \s has U+FEFF and lacks U+0085; these are the ones of the engine that the model was trained with.
_WHITE = r"\t-\r \u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"


def round_weights(model: GPT, kind: str) -> tuple[GPT, list[dict[str, Any]]]:
    """Return the model with the rounded weights of a page, and its tensors for the page. kind: f16 or q8_0.

    f16: matrices as halves. q8_0: each row (of the inputs of one output) as whole numbers up to 127 times a scale. The
    few other weights stay as they are.
    """
    tensors, stored = to_gpt2(model), []
    for name, tensor in tensors.items():
        array = transposed(name, tensor).contiguous().numpy()  # rows of outputs
        record: dict[str, Any] = {"name": name.removeprefix("transformer."), "shape": list(array.shape)}
        if array.ndim == 1:
            stored.append({**record, "type": "f32", "data": _base64(array.astype("<f4"))})
            continue
        if kind == "f16":
            rounded = array.astype("<f2")
            stored.append({**record, "type": "f16", "data": _base64(rounded)})
            back = rounded.astype(np.float32)
        else:
            scales = np.maximum(np.abs(array).max(1, keepdims=True), 1e-30).astype("<f4") / np.float32(127)
            whole = np.rint(array / scales).astype(np.int8)
            stored.append({**record, "type": "q8", "data": _base64(whole), "scales": _base64(scales)})
            back = whole.astype(np.float32) * scales
        tensors[name] = transposed(name, torch.from_numpy(back))
    rounded_model = copy.deepcopy(model)
    from_gpt2(tensors, rounded_model)
    if model.cfg.position == "sinusoidal":  # the page has the table of fixed positions, too
        rounded_model.get_buffer("position_table").copy_(tensors["transformer.wpe.weight"])
    return rounded_model, stored


def page_data(model: LanguageModel, kind: str, prompt: str) -> tuple[dict[str, Any], GPT]:
    """Return what the script of the page reads, and the model with the same rounded weights.

    prompt: what the page begins with. ConfigError for a model that is too large, or whose tokenizer has a pattern that
    a page cannot have.
    """
    cfg, gpt = model.gpt.cfg, model.gpt
    if gpt.n_parameters() > MOST_PARAMETERS:
        raise ConfigError(
            f"the model has {gpt.n_parameters():,} parameters, and a page at most {MOST_PARAMETERS:,}. Use --to gguf."
        )
    rounded, tensors = round_weights(gpt, kind)
    shape = {key: getattr(cfg, key) for key in ("n_layer", "n_head", "n_embd", "block_size", "activation")}
    data = {
        **shape,
        "scale": cfg.head_size**-0.5 if cfg.scale_attention else 1.0,
        "tensors": tensors,
        "tokenizer": tokenizer_data(model.tokenizer),
        "normalize": model.normal_form,
        "start": model.start_id,
        "end": model.tokenizer.eot_id,
        "suppressed": model.suppressed.nonzero()[0].tolist(),
        "prompt": prompt,
    }
    return data, rounded


def tokenizer_data(tokenizer: Tokenizer) -> dict[str, Any]:
    """Return the bytes of each id, one character U+0000 to U+00FF for each byte; for BPE also its pattern."""
    pattern, tokens = None, tokenizer.token_bytes()
    if isinstance(tokenizer, BpeTokenizer):
        known = "gpt2" if tokenizer.kind == "gpt2" else tokenizer.pattern_name
        if known is None:
            raise ConfigError(
                "a page cannot divide text as this tokenizer does. Train with tokenizer.kind=bpe or char."
            )
        pattern, tokens = for_javascript(PATTERNS[known]), tokenizer.ranks
    return {"pattern": pattern, "tokens": [token.decode("latin-1") for token in tokens]}


def for_javascript(pattern: str) -> str:
    r"""Rewrite a pattern for JavaScript, which has another \s and no possessive quantifiers.

    In our patterns, what follows a possessive one never begins with what it matches, so that it may as well be greedy.
    """
    greedy = re.sub(r"([*+])\+", r"\1", pattern)
    inside = re.sub(r"\[[^\]]*\]", lambda part: part[0].replace(r"\s", _WHITE), greedy)
    return inside.replace(r"\s", f"[{_WHITE}]").replace(r"\S", f"[^{_WHITE}]")


def _base64(array: npt.NDArray[Any]) -> str:
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
