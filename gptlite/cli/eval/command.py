"""`gptlite eval`: score models on text, plot their loss, show their attention, look for copies and exposure bias."""

from __future__ import annotations

from collections.abc import Iterable

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
    from gptlite.cli.eval.models import select_models

    mode = options.select_mode(context)
    console = Console()
    models = select_models(runs or [], checkpoint, check_keys("eval", set_), context_length, console.say)
    for model in models:
        console.say(f"checkpoint: {model.checkpoint.path}")
    lines: Iterable[str]
    if mode is None:
        from gptlite.cli.eval.scores import score_lines

        lines = score_lines(models, files, stride, as_json=as_json)
    elif mode == "--memorised":
        from gptlite.cli.eval.memorization import memorization_lines

        lines = memorization_lines(models, as_json=as_json)
    elif mode == "--exposure-bias":
        from gptlite.cli.eval.exposure_bias import exposure_lines

        lines = exposure_lines(models, files, as_json=as_json)
    else:
        from gptlite.cli.eval.pages import write_page

        lines = [str(write_page(mode, models, files, attention if follow is None else follow, out, console.say))]
    for line in lines:
        emit(f"{line}\n", styled=mode is None)
