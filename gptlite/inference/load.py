"""Load a trained model from a run or a checkpoint: `gptlite.load("runs/small")`."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Literal

from gptlite.config.loading import Override
from gptlite.config.schema import ModelSection, RunSection
from gptlite.errors import ConfigError, Damaged, RunError
from gptlite.formatting import Say, say_nothing
from gptlite.inference.engine import store_for_decoding
from gptlite.inference.language_model import LanguageModel
from gptlite.model.gpt import GPT
from gptlite.model.gpt2_layout import from_gpt2
from gptlite.planning.auto import resolve_compute
from gptlite.runs.checkpoint import Checkpoint
from gptlite.runs.find import choose_checkpoint, load_checkpoint_config
from gptlite.runs.run import runs_folder
from gptlite.tokenizers import base


def load(
    run: str | Path,
    *,
    checkpoint: str | None = None,
    device: str = "auto",
    root: Path | None = None,
    decoding: bool = False,
    say: Say = say_nothing,
) -> LanguageModel:
    """Load the model of a run (a folder, or a name under `root`, else $GPTLITE_RUNS, else ./runs) or checkpoint folder.

    checkpoint: best (the default), latest, or a step. decoding: on a CPU, lay out the weights so that generation is
    faster and scoring slower. say: called with a line for each damaged checkpoint that is skipped.
    RunError if there is no valid checkpoint.
    """
    found = choose_checkpoint(runs_folder() if root is None else root, str(run), checkpoint, say)
    cfg = load_checkpoint_config(found, [Override("device", "run.device", device)])
    return load_checkpoint(found, cfg.run, decoding=decoding)


def load_checkpoint(
    checkpoint: Checkpoint, section: RunSection, *, decoding: bool = False, context: int | None = None
) -> LanguageModel:
    """Load the model of an open checkpoint, to compute as `section` says. decoding: as in `load`.

    context: tokens that are read at a time, instead of block_size. ConfigError for a model with learned positions.
    """
    model, start_id, normal_form = read_model_info(checkpoint)
    if context is not None:
        model = with_context(model, context)
    tokenizer = base.load(checkpoint.path)
    compute = resolve_compute(section, model.block_size)
    gpt = build_model(checkpoint, model, tokenizer.vocab_size, compute.attention).to(compute.device)
    gpt.requires_grad_(False)
    if decoding and compute.device.type == "cpu":
        store_for_decoding(gpt)
    return LanguageModel(gpt, tokenizer, start_id, normal_form, compute)


def with_context(model: ModelSection, context: int) -> ModelSection:
    """Return the same model with another block_size than it was trained with, in tokens: its windows get that length.

    ConfigError for learned positions, which end at block_size.
    """
    if model.position == "learned":
        raise ConfigError(
            f"the model has learned the positions of its {model.block_size} tokens (position: learned) and no others. "
            "Leave the context out, or train with model.position=sinusoidal or none.",
            where="context",
        )
    return model.model_copy(update={"block_size": context})


def read_model_info(checkpoint: Checkpoint) -> tuple[ModelSection, int, Literal["none", "nfc"]]:
    """Read what `LanguageModel.to_json` gave a checkpoint's config.json: the model, start_id and the normal form.

    RunError if it is missing or malformed.
    """
    match checkpoint.read_json("config.json").get("gptlite"):
        case {"model": dict(model), "start_id": int(start_id), "normalize": ("none" | "nfc") as normalize}:
            with contextlib.suppress(ValueError):
                return ModelSection.model_validate(model), start_id, normalize
    raise RunError(
        "the fields model, start_id and normalize are missing or not valid. gptlite did not write this file; use "
        "another checkpoint.",
        where=str(checkpoint.path / "config.json"),
    )


def build_model(checkpoint: Checkpoint, cfg: ModelSection, vocab_size: int, attention: str) -> GPT:
    """Build the model of a checkpoint on the CPU. Damaged if its tensors do not fit its configuration."""
    tensors = checkpoint.read_tensors("model.safetensors")
    try:
        model = GPT(cfg, vocab_size, attention=attention)
        from_gpt2(tensors, model)
    except ValueError as error:
        raise Damaged(
            f"{error}. The checkpoint does not fit its own config.json; use another one.",
            where=f"{checkpoint.path}/model.safetensors",
        ) from error
    return model
