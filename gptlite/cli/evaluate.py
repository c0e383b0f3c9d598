"""`gptlite eval`: how well a model knows a text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gptlite.cli.options import CheckpointOption, RunArgument, SetOption, check_keys
from gptlite.cli.pages import AttentionOption, OutOption, PerTokenOption, Wanted
from gptlite.cli.terminal import Console
from gptlite.errors import DataError, RunError, naming

if TYPE_CHECKING:
    from gptlite.config.schema import RunConfig
    from gptlite.data.prepared import Prepared
    from gptlite.data.tokens import Tokens
    from gptlite.inference.load import Model
    from gptlite.inference.score import Score
    from gptlite.runs.checkpoint import Checkpoint


def evaluate(
    run: RunArgument = None,
    file: Annotated[
        str | None, typer.Option("--file", "-f", metavar="FILE", help="Score this text, not the run's validation text.")
    ] = None,
    checkpoint: CheckpointOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    set_: SetOption = None,
    attention: AttentionOption = None,
    per_token: PerTokenOption = False,
    out: OutOption = None,
) -> None:
    """Score a model on its validation text, or on any file: nats per token, perplexity, bits per byte; or look inside
    it, on a page that --attention or --per-token writes."""
    from gptlite.runs.choosing import choose_checkpoint, config_of
    from gptlite.runs.rundir import runs_folder

    console = Console()
    sets = check_keys("eval", set_)
    page = Wanted(attention, per_token, out, file)
    page.check(as_json=as_json)
    found = choose_checkpoint(runs_folder(), run or "latest", checkpoint, console.say)
    cfg = config_of(found, sets)
    console.say(f"checkpoint: {found.path}")
    text = read_text(file, cfg) if file is not None else None
    prepared = prepared_of(found, cfg) if text is None and attention is None else None
    # torch: not before the command line has been checked.
    from gptlite.compute.device import settings
    from gptlite.inference.load import load_checkpoint

    model = load_checkpoint(found, cfg.run)
    with settings(model.compute, deterministic=cfg.run.deterministic), naming("text", str(file)):
        tokens = model.tokens_to_score(text or "") if prepared is None else validation_of(model, prepared)
        if page:
            print(page.write(found, model, tokens, cfg.eval.batch_size, console.say))
            return
        score = model.score_tokens(tokens, batch_size=cfg.eval.batch_size)
    figures = {"checkpoint": str(found.path), "text": file or "validation", **figures_of(score)}
    for line in [json.dumps(figures)] if as_json else table(figures):
        print(line)


def read_text(file: str, cfg: RunConfig) -> str:
    """The text to score, in the encoding and normal form of the run's data. DataError if it is none."""
    from gptlite.data.sources import open_source

    if Path(file).is_dir():
        raise DataError(f"--file = {file}: a text file, and this is a folder; name a file in it")
    if not Path(file).exists():
        raise DataError(f"--file = {file}: no such file; check the path")
    (document,) = open_source(str(Path(file).absolute()), cfg.data.encoding, cfg.data.normalize).documents()
    return document.text


def prepared_of(checkpoint: Checkpoint, cfg: RunConfig) -> Prepared:
    """The prepared text of the run that a checkpoint lies in, whole. RunError if it is in none, or its text is gone."""
    from gptlite.runs.choosing import run_of
    from gptlite.training.launch import find_text

    run = run_of(checkpoint)
    if run is None:
        raise RunError(
            f"{checkpoint.path}: validation text = unknown: the folder is not in a run; score a text with --file"
        )
    prepared = find_text(run, cfg)
    if prepared is None:
        raise RunError(
            f"{run.path}: prepared text = {run.recorded('prepared', str)}: gone; say where it is now with "
            f"--set data.dir=FOLDER, or score a text with --file"
        )
    prepared.verify()
    return prepared


def validation_of(model: Model, prepared: Prepared) -> Tokens:
    """The whole validation split. RunError if it was made with another tokenizer."""
    theirs, ours = prepared.manifest.tokenizer.fingerprint, model.tokenizer.fingerprint
    if theirs != ours:
        raise RunError(f"{prepared.path}: tokenizer = {theirs[:12]}: the checkpoint has {ours[:12]}; use its own data")
    return prepared.split("val")


def figures_of(score: Score) -> dict[str, float]:
    """What is reported of a score."""
    return {
        "loss": score.loss,
        "perplexity": score.perplexity,
        "bits_per_byte": score.bits_per_byte,
        "tokens": score.tokens,
        "bytes": score.bytes,
    }


def table(figures: Mapping[str, object]) -> list[str]:
    """One line per figure, with its unit."""
    return [
        f"text            {figures['text']}",
        f"loss            {figures['loss']:.4f} nats per token",
        f"perplexity      {figures['perplexity']:.3f}",
        f"bits per byte   {figures['bits_per_byte']:.4f}",
        f"tokens          {figures['tokens']}",
        f"bytes           {figures['bytes']}",
    ]
