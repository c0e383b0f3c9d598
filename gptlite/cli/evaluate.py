"""`gptlite eval`: how well models know a text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from gptlite.cli.chosen import Chosen, choose
from gptlite.cli.options import CheckpointOption, SetOption, check_keys
from gptlite.cli.scoreboard import Row, as_json, tables
from gptlite.cli.terminal import Console
from gptlite.cli.texts import Text, texts_of_files, validation_text
from gptlite.errors import DataError, gathered, naming

if TYPE_CHECKING:
    from gptlite.data.tokens import Tokens
    from gptlite.inference.load import Model


def evaluate(
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN]...", help="Names or folders of runs, or folders of checkpoints. Default: the newest run."
        ),
    ] = None,
    files: Annotated[
        list[str] | None,
        typer.Option(
            "--file", "-f", metavar="FILE", help="Score this text, not the runs' validation text. May be repeated."
        ),
    ] = None,
    stride: Annotated[
        int | None,
        typer.Option(
            "--stride",
            metavar="N",
            help="Let windows start N tokens apart, so that each token has more context. Default: block_size.",
        ),
    ] = None,
    checkpoint: CheckpointOption = None,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    set_: SetOption = None,
) -> None:
    """Score models on their validation text, or on files: perplexity, bits per byte, bits per character."""
    console = Console()
    chosen = choose(runs or [], checkpoint, check_keys("eval", set_), console.say)
    for run in chosen:
        console.say(f"checkpoint: {run.checkpoint.path}")
    texts = texts_of_files(files, chosen) if files else [validation_text(chosen)]
    rows = compare(chosen, texts, stride)
    for line in [json.dumps(as_json(texts, rows))] if json_ else tables(texts, rows):
        print(line)


def compare(runs: Sequence[Chosen], texts: Sequence[Text], stride: int | None) -> list[Row]:
    """Score every text with every run. DataError, before any is scored, with every problem."""
    # torch: not before the command line has been checked.
    from gptlite.compute.device import settings
    from gptlite.inference.load import load_checkpoint
    from gptlite.inference.score import Score

    models = [load_checkpoint(run.checkpoint, run.cfg.run) for run in runs]
    rows = []
    for run, model, ids in zip(runs, models, ids_of(runs, models, texts, stride), strict=True):
        with settings(model.compute, deterministic=run.cfg.run.deterministic):
            batch_size = run.cfg.eval.batch_size
            scores = [model.score_tokens(tokens, batch_size=batch_size, stride=stride) for tokens in ids]
        rows.append(Row(run, model, scores, Score.total(scores)))
    return rows


def ids_of(
    runs: Sequence[Chosen], models: Sequence[Model], texts: Sequence[Text], stride: int | None = None
) -> list[list[Tokens]]:
    """For each run, the ids of each text. DataError with every problem, where one cannot be scored so."""
    problems: list[str] = []
    found: list[list[Tokens]] = []
    for run, model in zip(runs, models, strict=True):
        where = f"{run.label}: " if len(runs) > 1 else ""
        found.append([])
        for text in texts:
            with gathered(problems), naming("text", where + text.name), naming("stride", f"{where}--stride"):
                tokens = text.tokens(run, model)
                model.windows(tokens, stride)
                found[-1].append(tokens)
    if problems:
        raise DataError(list(dict.fromkeys(problems)))
    return found
