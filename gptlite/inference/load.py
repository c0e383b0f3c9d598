"""Load a trained model from a run or a checkpoint: `gptlite.load("runs/small")`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from gptlite import tokenizers
from gptlite.compute.device import resolve_compute
from gptlite.config.loading import Override
from gptlite.config.schema import ModelSection, RunSection
from gptlite.errors import RunError
from gptlite.inference.engine import store_for_decoding
from gptlite.inference.language_model import LanguageModel, ModelInfo
from gptlite.json_files import check_version
from gptlite.model.gpt import GPT
from gptlite.model.gpt2_layout import FORMAT_VERSION, from_gpt2
from gptlite.runs.checkpoint import Checkpoint, Damaged
from gptlite.runs.find import choose_checkpoint, load_checkpoint_config
from gptlite.runs.run import runs_folder


def ignore_warning(line: str) -> None:
    """Drop a warning: the default of `load`, under a name that its help can show."""


def load(
    run: str | Path,
    *,
    checkpoint: str | None = None,
    device: str = "auto",
    root: Path | None = None,
    decoding: bool = False,
    warn: Callable[[str], None] = ignore_warning,
) -> LanguageModel:
    """Load the model of a run (a folder, or a name under `root`, else $GPTLITE_RUNS, else ./runs) or checkpoint folder.

    checkpoint: best (the default), latest, or a step. decoding: on a CPU, lay out the weights so that generation is
    faster and scoring slower. warn: called with a line for each damaged checkpoint that is skipped.
    RunError if there is no valid checkpoint.
    """
    found = choose_checkpoint(runs_folder() if root is None else root, str(run), checkpoint, warn)
    cfg = load_checkpoint_config(found, [Override("device", "run.device", device)])
    return load_checkpoint(found, cfg.run, decoding=decoding)


def load_checkpoint(found: Checkpoint, section: RunSection, *, decoding: bool = False) -> LanguageModel:
    """Load the model of an open checkpoint, to compute as `section` says. decoding: as in `load`."""
    info = read_model_info(found)
    tokenizer = tokenizers.base.load(found.path)
    compute = resolve_compute(section, info.model.block_size)
    gpt = build_model(found, info, tokenizer.vocab_size, compute.attention).to(compute.device)
    gpt.requires_grad_(False)
    if decoding and compute.device.type == "cpu":
        store_for_decoding(gpt)
    return LanguageModel(gpt, tokenizer, info, compute)


def read_model_info(checkpoint: Checkpoint) -> ModelInfo:
    """Read what a checkpoint's config.json says under "gptlite". RunError if it is missing or of another version."""
    values: Mapping[str, Any] = checkpoint.read_json("config.json").get("gptlite", {})
    check_version(checkpoint.path / "config.json", values, FORMAT_VERSION)
    return ModelInfo(ModelSection.model_validate(values["model"]), int(values["start_id"]), values["normalize"])


def build_model(checkpoint: Checkpoint, info: ModelInfo, vocab_size: int, attention: str) -> GPT:
    """Build the model of a checkpoint on the CPU.

    Damaged if its tensors do not fit its configuration, RunError for weights that are not finite.
    """
    model = GPT(info.model, vocab_size, attention=attention)
    try:
        from_gpt2(checkpoint.read_model(), model)
    except ValueError as error:
        raise Damaged(
            f"{error}. The checkpoint does not fit its own config.json; use another one.",
            where=f"{checkpoint.path}/model.safetensors",
        ) from error
    for name, parameter in model.named_parameters():
        if not torch.isfinite(parameter).all():
            raise RunError(
                f"{name} has values that are not finite. Use another checkpoint.", where=str(checkpoint.path)
            )
    return model
