"""The contents of a training checkpoint, and how a run is restored from one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from gptlite.errors import Damaged, RunError
from gptlite.inference.language_model import LanguageModel
from gptlite.loggers.log_files import LogEnd
from gptlite.model.gpt import GPT
from gptlite.model.gpt2_layout import from_gpt2, generation_config, hf_config, to_gpt2
from gptlite.runs.checkpoint import Checkpoint
from gptlite.training.optim.build import Optimizers, load_named_state, named_state
from gptlite.training.state import TrainState


def as_json(values: Mapping[str, Any]) -> bytes:
    return (json.dumps(values, indent=2, sort_keys=True) + "\n").encode()


def checkpoint_files(
    model: LanguageModel, deciding: Mapping[str, Any], state: TrainState, logs: Mapping[str, LogEnd]
) -> dict[str, bytes]:
    """Return every file of a checkpoint but its tensors. Hugging Face opens the folder as it is if it holds a GPT-2.

    deciding: the values that must be the same in a run that resumes from it.
    """
    tokenizer, info = model.tokenizer, model.info
    config = hf_config(info.model, tokenizer.vocab_size, tokenizer.eot_id)
    generation = generation_config(info.model, tokenizer.eot_id, model.suppressed.nonzero()[0].tolist())
    record = {
        "train": asdict(state),
        "config": deciding,
        "logs": {name: asdict(end) for name, end in logs.items()},
    }
    return {
        **tokenizer.files(),
        "config.json": as_json({**config, "gptlite": info.to_json()}),
        "generation_config.json": as_json(generation),
        "state.json": as_json(record),
    }


def checkpoint_tensors(model: GPT, optimizers: Optimizers) -> dict[str, dict[str, Tensor]]:
    """The tensor files of a checkpoint: parameters in GPT-2's layout, optimizer state by our parameter names."""
    return {"model.safetensors": to_gpt2(model), "optimizer.safetensors": named_state(model, optimizers)}


def first_non_finite(model: GPT, optimizers: Optimizers) -> str | None:
    """The name of the first parameter or optimizer state with a value that is not finite; None where all are.

    A sum is quicker to take than a test of each value, and where it is finite, every value is.
    """
    named = {**dict(model.named_parameters()), **named_state(model, optimizers)}
    tensors = {name: tensor.detach() for name, tensor in named.items() if tensor.ndim}
    sums = torch.stack([tensor.sum(dtype=torch.float32) for tensor in tensors.values()])
    if sums.isfinite().all():
        return None
    return next((name for name, tensor in tensors.items() if not tensor.isfinite().all()), None)


@dataclass(frozen=True)
class Restored:
    """The part of a checkpoint that says where training and its logs stood. logs: none where they were not sealed."""

    state: TrainState
    logs: Mapping[str, LogEnd]
    digest: str


def restore(checkpoint: Checkpoint, model: GPT, optimizers: Optimizers, deciding: Mapping[str, Any]) -> Restored:
    """Load a checkpoint into `model` and `optimizers`.

    RunError, naming both sides, where a value that decides the result is not that of the run. Damaged where a file
    changed or a number is not finite.
    """
    record = checkpoint.read_json("state.json")
    problems = [
        f"the checkpoint was trained with {key}={record['config'][key]}, and the run has {value}. Restore the old "
        "value, or start a new run."
        for key, value in deciding.items()
        if record["config"].get(key, value) != value
    ]
    if problems:
        raise RunError(problems, where=str(checkpoint.path))
    try:
        from_gpt2(checkpoint.read_tensors("model.safetensors"), model)
        load_named_state(model, optimizers, checkpoint.read_tensors("optimizer.safetensors"))
    except ValueError as error:
        raise RunError(
            f"{error}. The checkpoint does not fit its run; use another one.", str(checkpoint.path)
        ) from error
    if (name := first_non_finite(model, optimizers)) is not None:
        raise Damaged(f"{name} has values that are not finite.", str(checkpoint.path))
    logs = {name: LogEnd(**end) for name, end in record["logs"].items()}
    return Restored(TrainState(**record["train"]), logs, checkpoint.digest)
