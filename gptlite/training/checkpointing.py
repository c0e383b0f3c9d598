"""The contents of a training checkpoint, and how a run is restored from one."""

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
from gptlite.json_files import FORMAT_VERSION, check_version
from gptlite.model.gpt import GPT
from gptlite.model.gpt2_layout import from_gpt2, generation_config, hf_config, to_gpt2
from gptlite.runs.checkpoint import Checkpoint
from gptlite.training.optim.build import Optimizers, load_named_state, named_state
from gptlite.training.state import TrainState


@dataclass(frozen=True)
class Identity:
    """What must be the same in a checkpoint and in the run that resumes from it: two fingerprints, the optimizer."""

    tokenizer: str
    data: str
    optimizer: str

    def to_json(self) -> dict[str, str]:
        return {"tokenizer": self.tokenizer, "data": self.data, "optimizer": self.optimizer}


def as_json(values: Mapping[str, Any]) -> bytes:
    return (json.dumps(values, indent=2, sort_keys=True) + "\n").encode()


def checkpoint_files(model: LanguageModel, identity: Identity, state: TrainState) -> dict[str, bytes]:
    """Every file of a checkpoint except its tensors. Hugging Face opens the folder as it is if the model is a GPT-2."""
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


def checkpoint_tensors(model: GPT, optimizers: Optimizers) -> dict[str, dict[str, Tensor]]:
    """The tensor files of a checkpoint: parameters in GPT-2's layout, optimizer state by our parameter names."""
    return {"model.safetensors": to_gpt2(model), "optimizer.safetensors": named_state(model, optimizers)}


def restore(
    checkpoint: Checkpoint, model: GPT, optimizers: Optimizers, identity: Identity, cfg: RunConfig
) -> TrainState:
    """Load a checkpoint into `model` and `optimizers`; return the state of training.

    RunError, naming both sides, where text, tokenizer, optimizer or model differ from those of the run.
    """
    record = checkpoint.state
    check_version(checkpoint.path / "state.json", record, FORMAT_VERSION)
    problems = [
        f"the checkpoint was trained with {what} {saved[:12]}, and the run now has {identity.to_json()[what][:12]}. "
        "Restore what it was started with, or start a new run."
        for what, saved in record["identity"].items()
        if saved != identity.to_json().get(what)
    ]
    saved_model = read_model_info(checkpoint).model.model_dump()
    problems += [
        f"the checkpoint has model.{key}={saved_model.get(key)}, and config.yaml {value}. Restore the old value, or "
        "start a new run."
        for key, value in cfg.model.model_dump().items()
        if saved_model.get(key) != value
    ]
    if problems:
        raise RunError(problems, where=str(checkpoint.path))
    try:
        from_gpt2(checkpoint.read_model(), model)
        load_named_state(model, optimizers, checkpoint.read_optimizer())
    except ValueError as error:
        raise RunError(
            f"{error}. The checkpoint does not fit its run; use another one.", str(checkpoint.path)
        ) from error
    return TrainState.from_json(record["train"])
