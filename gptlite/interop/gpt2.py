"""A GPT-2 in Hugging Face's format: what its config.json says of the model, its tensors, and the published one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from torch import Tensor

from gptlite.config.schema import ModelSection
from gptlite.download import is_offline
from gptlite.errors import ConfigError, DataError, Problem, StorageError
from gptlite.model.activations import ACTIVATIONS
from gptlite.storage import files

GPT2 = "gpt2"  # Radford et al. 2019, the smallest
_REPOSITORY, _REVISION = "openai-community/gpt2", "607a30d783dfa663caf39e06633721c8d4cfcd7e"
_SHA256 = {
    "config.json": "0daed7749b4f02b8f76240d5444551d7b08712dab4d0adb8239c56ba823bb7b4",
    "model.safetensors": "248dfc3911869ec493c76e65bf2fcf7f615828b0254c12b473182f0f81d3a707",
    "tokenizer.json": "8414cab924d8b9b33013f0d221c5862f365ee9be39c5c2bfae8a5a9e970478a6",
}
_ACTIVATIONS = {each.gpt2_name: name for name, each in ACTIVATIONS.items()} | {"gelu_pytorch_tanh": "gelu"}
_SIZES = {"n_layer": "n_layer", "n_head": "n_head", "n_embd": "n_embd", "n_positions": "block_size"}
# Values that a key must have, where it is there at all.
_ONLY: Mapping[str, tuple[Any, ...]] = {
    "activation_function": tuple(_ACTIVATIONS),
    "layer_norm_epsilon": (1e-5,),
    "scale_attn_by_inverse_layer_idx": (False,),
    "reorder_and_upcast_attn": (False,),
    "add_cross_attention": (False,),
    "is_encoder_decoder": (False,),
}
_COMPUTED = {*_SIZES, *_ONLY, "model_type", "n_inner", "scale_attn_weights", "tie_word_embeddings"}
# These say nothing of what the model computes: for training, generating, other heads, or who wrote the file.
_OTHERS = {
    *("architectures", "vocab_size", "n_ctx", "dtype", "torch_dtype", "transformers_version", "gptlite", "use_cache"),
    *("bos_token_id", "eos_token_id", "pad_token_id", "initializer_range", "n_special", "predict_special_tokens"),
    *("attn_pdrop", "embd_pdrop", "resid_pdrop", "task_specific_params", "gradient_checkpointing", "output_past"),
    *("id2label", "label2id", "problem_type", "return_dict", "output_attentions", "output_hidden_states"),
    *("chunk_size_feed_forward", "tokenizer_class"),
}


def read_section(path: Path) -> ModelSection:
    """Return the model that a config.json describes, without dropout. ConfigError with every problem."""
    try:
        with files.storage_errors(path, "read"):
            config = dict(json.loads(path.read_bytes()))
    except (ValueError, TypeError) as error:
        raise DataError("this is no JSON object. Restore the file from where it came from.", str(path)) from error
    if (kind := config.get("model_type")) != "gpt2":
        raise ConfigError(f"model_type is {kind!r}, and only gpt2 can be read. Use a GPT-2.", str(path))
    problems = [
        f"{key} is {config[key]!r}, which cannot be read. Use a model with {' or '.join(map(repr, values))}."
        for key, values in _ONLY.items()
        if key in config and config[key] not in values
    ]
    for key in _SIZES:
        if type(config.get(key)) is not int or config[key] < 1:
            problems.append(f"{key} is {config.get(key)!r}, which is no whole number above 0.")
    width, inner = config.get("n_embd"), config.get("n_inner")
    if inner is not None and type(width) is int and inner != 4 * width:
        problems.append(f"n_inner is {inner!r}, and only {4 * width}, 4 times n_embd, can be read.")
    unknown = sorted(key for key in config.keys() - _COMPUTED - _OTHERS if not key.startswith(("_", "summary_")))
    if unknown:
        problems.append(
            f"gptlite does not know {', '.join(unknown)}, which may change what the model computes. Remove those "
            "that do not."
        )
    if problems:
        raise ConfigError([Problem(problem, str(path)) for problem in problems])
    computed = {
        "activation": _ACTIVATIONS[config.get("activation_function", "gelu_new")],
        "bias": True,  # GPT-2 has them everywhere
        "scale_attention": config.get("scale_attn_weights", True),
        "tie_weights": config.get("tie_word_embeddings", True),
        "init": "gpt2",
    }
    try:
        return ModelSection.model_validate({ours: config[theirs] for theirs, ours in _SIZES.items()} | computed)
    except ValidationError as error:
        reasons = [f"{'.'.join(map(str, each['loc'])) or 'the sizes'}: {each['msg']}" for each in error.errors()]
        raise ConfigError([Problem(f"this describes no model ({reason}).", str(path)) for reason in reasons]) from error


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """Return the tensors of a folder by their names in GPT2LMHeadModel. DataError for a file that cannot be read."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    index, names = folder / "model.safetensors.index.json", ["model.safetensors"]
    with files.storage_errors(folder, "read"):
        if index.exists() and not (folder / names[0]).exists():
            try:
                names = sorted({Path(name).name for name in json.loads(index.read_bytes())["weight_map"].values()})
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise DataError("this does not list the files of a model. Copy it again.", str(index)) from error
        if missing := [name for name in names if not (folder / name).is_file()]:
            pickles = sorted(path.name for path in folder.glob("*.bin"))
            advice = (
                f"{pickles[0]} is a pickle, which can run any program. Convert it where you trust it: "
                "AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(NEW)."
                if pickles
                else "Copy the whole folder."
            )
            raise DataError(f"there is no {' and no '.join(missing)} in it. {advice}", str(folder))
        tensors: dict[str, Tensor] = {}
        for name in names:
            try:
                tensors |= load_file(folder / name)
            except (SafetensorError, KeyError, ValueError, RuntimeError) as error:
                raise DataError("this is no valid safetensors file. Copy it again.", str(folder / name)) from error
    prefixes = ("transformer.", "lm_head.")
    return {name if name.startswith(prefixes) else f"transformer.{name}": each for name, each in tensors.items()}


def fetch_gpt2() -> Path:
    """Return the folder of the published GPT-2 in Hugging Face's cache, downloaded if it is missing, and checked."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.utils import logging

    logging.set_verbosity_error()  # type: ignore[no-untyped-call]  # each of its attempts would be a warning
    for name, sha256 in _SHA256.items():
        try:  # what the cache has of this revision is taken without the network
            path = Path(hf_hub_download(_REPOSITORY, name, revision=_REVISION, local_files_only=is_offline()))
        except Exception as error:  # of several libraries that download
            reason: BaseException = error
            while reason.__context__ is not None:
                reason = reason.__context__
            raise StorageError(
                f"{name} of {_REPOSITORY} was not found: {str(reason).partition('. ')[0]}. Go online, or put "
                f"{', '.join(_SHA256)} into a folder, and name that folder."
            ) from error
        with files.storage_errors(path, "read"), path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != sha256:
                problem = f"this is not the file that was published (sha256 {sha256[:12]}...). Remove it."
                raise StorageError(problem, str(path.resolve()))
    return path.parent
