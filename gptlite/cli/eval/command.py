"""`gptlite eval`: score models on text, plot their loss, show their attention, search for memorised text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from gptlite.cli.eval import options
from gptlite.cli.options import CheckpointOption, SetOption, check_keys
from gptlite.cli.terminal import Console, emit

if TYPE_CHECKING:
    from gptlite.cli.eval.models import SelectedModel


def evaluate(
    runs: options.Runs = None,
    files: options.Files = None,
    stride: options.Stride = None,
    by_position: options.ByPosition = False,
    memorised: options.Memorised = False,
    per_token: options.PerToken = False,
    attention: options.Attention = None,
    out: options.Out = None,
    checkpoint: CheckpointOption = None,
    as_json: options.Json = False,
    set_: SetOption = None,
) -> None:
    """Score models on their validation text or on files: loss, perplexity, bits per byte, bits per character."""
    from gptlite.cli.eval.models import select_models

    modes = {
        "--by-position": by_position,
        "--memorised": memorised,
        "--per-token": per_token,
        "--attention": attention is not None,
    }
    mode = options.mode_of(modes, {"--file": files, "--stride": stride, "--out": out, "--json": as_json}, runs)
    console = Console()
    models = select_models(runs or [], checkpoint, check_keys("eval", set_), console.say)
    for model in models:
        console.say(f"checkpoint: {model.checkpoint.path}")
    if mode is None:
        lines = score_lines(models, files, stride, as_json=as_json)
    elif mode == "--memorised":
        lines = memorization_lines(models, as_json=as_json)
    else:
        from gptlite.cli.eval.pages import write_page

        lines = [str(write_page(mode, models, files, attention, out, console.say))]
    for line in lines:
        emit(f"{line}\n")


def score_lines(
    models: Sequence[SelectedModel], files: Sequence[str] | None, stride: int | None, *, as_json: bool
) -> Iterable[str]:
    """Return the scores of every model on every text, as tables or JSON."""
    from gptlite.cli.eval.eval_texts import find_texts
    from gptlite.cli.eval.evaluator import load_evaluators
    from gptlite.cli.eval.scores import ScoreRow, as_tables, as_values

    texts = find_texts(files, models)
    rows = [ScoreRow.of(evaluator, stride) for evaluator in load_evaluators(models, texts, stride)]
    return [json.dumps(as_values(texts, rows))] if as_json else as_tables(texts, rows)


def memorization_lines(models: Sequence[SelectedModel], *, as_json: bool) -> Iterable[str]:
    """Return what of the models' samples their training text contains, as lines or JSON."""
    from gptlite.cli.eval.memorization import as_lines, as_values, search_samples

    found = search_samples(models)
    return [json.dumps(as_values(found))] if as_json else as_lines(found)
