"""`gptlite eval`: score models on text, plot their loss, show their attention, look for copies and exposure bias."""

from __future__ import annotations

import json

import typer

from gptlite.cli.eval import options
from gptlite.cli.options import CheckpointOption, ContextOption, SetOption, check_keys
from gptlite.cli.terminal import Console, emit


def evaluate(
    context: typer.Context,
    runs: options.Runs = None,
    files: options.Files = None,
    stride: options.Stride = None,
    by_position: options.ByPosition = False,
    memorised: options.Memorised = False,
    exposure_bias: options.ExposureBias = False,
    per_token: options.PerToken = False,
    attention: options.Attention = None,
    follow: options.Follow = None,
    out: options.Out = None,
    context_length: ContextOption = None,
    checkpoint: CheckpointOption = None,
    as_json: options.Json = False,
    set_: SetOption = None,
) -> None:
    """Score models on their validation text or on files: loss, perplexity, bits per byte, bits per character."""
    from gptlite.cli.eval import behaviour, scores
    from gptlite.cli.eval.models import select_models
    from gptlite.cli.eval.pages import write_page

    mode = options.select_mode(context)
    console = Console()
    models = select_models(runs or [], checkpoint, check_keys("eval", set_), context_length, console.say)
    for model in models:
        console.say(f"checkpoint: {model.checkpoint.path}")
    if mode is None:
        values, describe = scores.measure_scores(models, files, stride), scores.describe_scores
    elif mode == "--memorised":
        values, describe = behaviour.measure_copies(models), behaviour.describe_copies
    elif mode == "--exposure-bias":
        values, describe = behaviour.measure_exposure(models, files), behaviour.describe_exposure
    else:
        path = write_page(mode, models, files, attention if follow is None else follow, out)
        emit(f"{path}\n")
        return
    for line in [json.dumps(values)] if as_json else describe(values):
        emit(f"{line}\n")
