"""What a checkpoint of a run in training holds, and how it is put back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from gptlite.config.schema import RunConfig
from gptlite.errors import RunError
from gptlite.inference.language_model import LanguageModel
from gptlite.inference.load import read_model_info
from gptlite.model.gpt import GPT
from gptlite.model.gpt2_layout import from_gpt2, generation_config, hf_config, to_gpt2
from gptlite.runs.checkpoint import Checkpoint
from gptlite.training.optim.build import Optimizers, load_named_state, named_state
from gptlite.training.state import TrainState

FORMAT_VERSION = 1


@dataclass(frozen=True)
class Identity:
    """What must not change between a checkpoint and the run that continues from it."""

    tokenizer: str  # fingerprints
    data: str
    optimizer: str

    def to_json(self) -> dict[str, str]:
        return {"tokenizer": self.tokenizer, "data": self.data, "optimizer": self.optimizer}


def as_json(values: Mapping[str, Any]) -> bytes:
    return (json.dumps(values, indent=2, sort_keys=True) + "\n").encode()


def files_of(model: LanguageModel, identity: Identity, state: TrainState) -> dict[str, bytes]:
    """Every file of a checkpoint but its tensors. Hugging Face opens the folder as it is, where GPT-2 can say it."""
    tokenizer, info = model.tokenizer, model.info
    config = hf_config(info.model, tokenizer.vocab_size, tokenizer.eot_id)
    generation = generation_config(info.model, tokenizer.eot_id, model.suppressed.nonzero()[0].tolist())
    record = {"format_version": FORMAT_VERSION, "train": state.to_json(), "identity": identity.to_json()}
    return {
        **tokenizer.files(),
        "config.json": as_json({**config, "gptlite": info.to_json()}),
        "generation_config.json": as_json(generation),
        "state.json": as_json(record),
    }


def tensors_of(model: GPT, optimizers: Optimizers) -> dict[str, dict[str, Tensor]]:
    """The tensor files of a checkpoint: parameters in GPT-2's layout, optimizer state by our parameter names."""
    return {"model.safetensors": to_gpt2(model), "optimizer.safetensors": named_state(model, optimizers)}


def restore(
    checkpoint: Checkpoint, model: GPT, optimizers: Optimizers, identity: Identity, cfg: RunConfig
) -> TrainState:
    """Put a checkpoint back into `model` and `optimizers`; where training stood.

    RunError, naming both sides, where the run is not the one that wrote it.
    """
    record = checkpoint.state
    if record.get("format_version") != FORMAT_VERSION:
        raise RunError(
            f"{checkpoint.path}/state.json: format_version = {record.get('format_version')}: this gptlite reads "
            f"{FORMAT_VERSION}; use the version that wrote it"
        )
    problems = [
        f"{checkpoint.path}: {what} = {saved}: the run now has {identity.to_json().get(what)}; "
        "restore what it was started with, or start a new run"
        for what, saved in record["identity"].items()
        if saved != identity.to_json().get(what)
    ]
    saved_model = read_model_info(checkpoint).model.model_dump()
    problems += [
        f"{checkpoint.path}: model.{key} = {saved_model.get(key)}: config.yaml has {value}; "
        "put the old value back, or start a new run"
        for key, value in cfg.model.model_dump().items()
        if saved_model.get(key) != value
    ]
    if problems:
        raise RunError(problems)
    try:
        from_gpt2(checkpoint.read_model(), model)
        load_named_state(model, optimizers, checkpoint.read_optimizer())
    except ValueError as error:
        raise RunError(f"{checkpoint.path}: {error}: the checkpoint does not fit its run; use another one") from error
    return TrainState.from_json(record["train"])
