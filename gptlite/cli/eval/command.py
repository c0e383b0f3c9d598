"""`gptlite eval`: how well models know a text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from gptlite.cli.eval import options as options
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
    """Score models on their validation text, or on files: perplexity, bits per byte, bits per character."""
    from gptlite.cli.eval.models import choose

    looks = {"--by-position": by_position, "--memorised": memorised, "--per-token": per_token}
    ways = {**looks, "--attention": attention is not None}
    way = options.way_of(ways, {"--file": files, "--stride": stride, "--out": out, "--json": as_json}, runs)
    console = Console()
    chosen = choose(runs or [], checkpoint, check_keys("eval", set_), console.say)
    for run in chosen:
        console.say(f"checkpoint: {run.checkpoint.path}")
    if way is None:
        lines = scores(chosen, files, stride, as_json=as_json)
    elif way == "--memorised":
        lines = memory(chosen, as_json=as_json)
    else:
        lines = [drawn(way, chosen, files, attention, out, console)]
    for line in lines:
        emit(f"{line}\n")


def scores(
    chosen: Sequence[SelectedModel], files: Sequence[str] | None, stride: int | None, *, as_json: bool
) -> Iterable[str]:
    """Every run on every text."""
    from gptlite.cli.eval.eval_texts import texts_of
    from gptlite.cli.eval.evaluator import load_evaluators
    from gptlite.cli.eval.scores import ScoreRow, as_values, tables

    texts = texts_of(files, chosen)
    rows = [ScoreRow.of(judge, stride) for judge in load_evaluators(chosen, texts, stride)]
    return [json.dumps(as_values(texts, rows))] if as_json else tables(texts, rows)


def memory(chosen: Sequence[SelectedModel], *, as_json: bool) -> Iterable[str]:
    """What of the runs' writing stands in their training text."""
    from gptlite.cli.eval.memorization import as_lines, as_values, by_heart

    found = by_heart(chosen)
    return [json.dumps(as_values(found))] if as_json else as_lines(found)


def drawn(
    way: str,
    chosen: Sequence[SelectedModel],
    files: Sequence[str] | None,
    attention: str | None,
    out: str | None,
    console: Console,
) -> str:
    """Write a picture or a page; where it is."""
    from gptlite.cli.eval.by_position import draw_by_position
    from gptlite.cli.eval.eval_texts import texts_of
    from gptlite.cli.eval.evaluator import load_evaluators
    from gptlite.cli.eval.models import output_path
    from gptlite.cli.eval.pages import write_attention, write_per_token

    kind = {"--by-position": "by-position.svg", "--per-token": "per-token.html", "--attention": "attention.html"}[way]
    path = output_path([run.name for run in chosen], out, kind)
    if attention is not None:
        write_attention(load_evaluators(chosen, [])[0], attention, path)
        return str(path)
    texts = texts_of(files, chosen)
    if way == "--per-token":
        write_per_token(load_evaluators(chosen, texts)[0], texts[0], path, console.say)
    else:
        draw_by_position(load_evaluators(chosen, texts), texts, path)
    return str(path)
