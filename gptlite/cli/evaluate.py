"""`gptlite eval`: how well models know a text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

import typer

from gptlite.cli.by_position import draw_by_position
from gptlite.cli.chosen import choose, output_path
from gptlite.cli.judging import judges
from gptlite.cli.memorised import as_lines, as_values, by_heart
from gptlite.cli.options import CheckpointOption, SetOption, check_keys
from gptlite.cli.pages import write_attention, write_per_token
from gptlite.cli.scoreboard import Row, as_json, tables
from gptlite.cli.terminal import Console, emit
from gptlite.cli.texts import texts_of
from gptlite.errors import ConfigError

# Ways of looking, and the options that mean something to each; None: the table of scores.
TAKES = {
    None: ("--file", "--stride", "--json"),
    "--by-position": ("--file", "--out"),
    "--memorised": ("--json",),
    "--per-token": ("--file", "--out"),
    "--attention": ("--out",),
}


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
    by_position: Annotated[
        bool, typer.Option("--by-position", help="Draw how the loss falls with the tokens of context, as an SVG file.")
    ] = False,
    memorised: Annotated[
        bool, typer.Option("--memorised", help="Let the models write, and look for it in their training text.")
    ] = False,
    per_token: Annotated[
        bool, typer.Option("--per-token", help="Write a page that colours the text by how surprising each token was.")
    ] = False,
    attention: Annotated[
        str | None,
        typer.Option(
            "--attention", metavar="TEXT", help="Write a page that works out the attention of every head for this text."
        ),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option("--out", metavar="FILE", help="Where the picture or page goes. Default: RUN-by-position.svg, ..."),
    ] = None,
    checkpoint: CheckpointOption = None,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    set_: SetOption = None,
) -> None:
    """Score models on their validation text, or on files: perplexity, bits per byte, bits per character."""
    ways = {
        "--by-position": by_position,
        "--memorised": memorised,
        "--per-token": per_token,
        "--attention": attention is not None,
    }
    check_together(ways, {"--file": files, "--stride": stride, "--out": out, "--json": json_})
    console = Console()
    chosen = choose(runs or [], checkpoint, check_keys("eval", set_), console.say)
    for run in chosen:
        console.say(f"checkpoint: {run.checkpoint.path}")
    lines: Iterable[str]
    if memorised:
        found = by_heart(chosen)
        lines = [json.dumps(as_values(found))] if json_ else as_lines(found)
    elif by_position:
        path = output_path(chosen, out, "by-position.svg")
        texts = texts_of(files, chosen)
        draw_by_position(judges(chosen, texts), texts, path)
        lines = [str(path)]
    elif per_token:
        path = output_path(chosen, out, "per-token.html")
        check_one("RUN", chosen)
        check_one("--file", files or [])
        [text] = texts_of(files, chosen)
        write_per_token(judges(chosen, [text])[0], text, path, console.say)
        lines = [str(path)]
    elif attention is not None:
        path = output_path(chosen, out, "attention.html")
        check_one("RUN", chosen)
        write_attention(judges(chosen, [])[0], attention, path)
        lines = [str(path)]
    else:
        texts = texts_of(files, chosen)
        rows = [Row.of(judge, stride) for judge in judges(chosen, texts, stride)]
        lines = [json.dumps(as_json(texts, rows))] if json_ else tables(texts, rows)
    for line in lines:
        emit(f"{line}\n")


def check_together(ways: Mapping[str, bool], options: Mapping[str, object]) -> None:
    """ConfigError for ways of looking that exclude each other, and options that would do nothing."""
    asked = [way for way, wanted in ways.items() if wanted]
    way = asked[0] if asked else None
    problems = [f"{other} = given: not with {way}, which shows something else; one at a time" for other in asked[1:]]
    for option, value in options.items():
        if value not in (None, False, []) and option not in TAKES[way]:
            others = [str(other) for other, takes in TAKES.items() if option in takes]
            problems.append(f"{option} = given: {f'not with {way}' if way else f'only with {others[0]}'}; leave it out")
    if problems:
        raise ConfigError(problems)


def check_one(what: str, given: Sequence[object]) -> None:
    """ConfigError for several of something of which a page shows one."""
    if len(given) > 1:
        raise ConfigError(f"{what} = {len(given)} of them: a page shows one; leave out the others")
