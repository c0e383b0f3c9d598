"""The options of `gptlite eval`, and which of them mean something together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from gptlite.errors import ConfigError

Runs = Annotated[
    list[str] | None,
    typer.Argument(metavar="RUN", help="Names or folders of runs, or folders of checkpoints. Default: the newest run."),
]
Files = Annotated[
    list[str] | None,
    typer.Option(
        "--file", "-f", metavar="FILE", help="Score this text, not the runs' validation text. May be repeated."
    ),
]
Stride = Annotated[
    int | None,
    typer.Option(
        "--stride",
        metavar="N",
        help="Let windows start N tokens apart, so that each token has more context. Default: block_size.",
    ),
]
ByPosition = Annotated[
    bool, typer.Option("--by-position", help="Draw how the loss falls with the tokens of context, as an SVG file.")
]
Memorised = Annotated[
    bool, typer.Option("--memorised", help="Let the models write, and look for it in their training text.")
]
PerToken = Annotated[
    bool, typer.Option("--per-token", help="Write a page that colours the text by how surprising each token was.")
]
Attention = Annotated[
    str | None,
    typer.Option(
        "--attention", metavar="TEXT", help="Write a page that works out the attention of every head for this text."
    ),
]
Out = Annotated[
    str | None,
    typer.Option("--out", "-o", metavar="FILE", help="Where picture or page goes. Default: RUN-by-position.svg, ..."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]

# Ways of looking, and the options that mean something to each; None: the table of scores.
TAKES: Mapping[str | None, Sequence[str]] = {
    None: ("--file", "--stride", "--json"),
    "--by-position": ("--file", "--out"),
    "--memorised": ("--json",),
    "--per-token": ("--file", "--out"),
    "--attention": ("--out",),
}
SHOW_ONE = ("--per-token", "--attention")  # ways that show one run and one text


def way_of(ways: Mapping[str, bool], options: Mapping[str, object], runs: Sequence[str] | None) -> str | None:
    """The one way of looking that is asked for.

    ConfigError for ways that exclude each other, options that would do nothing, and several of what a page shows once.
    """
    asked = [way for way, wanted in ways.items() if wanted]
    way = asked[0] if asked else None
    problems = [f"{other} = given: not with {way}, which shows something else; one at a time" for other in asked[1:]]
    for option, value in options.items():
        if value not in (None, False, []) and option not in TAKES[way]:
            others = ", ".join(str(other) for other, takes in TAKES.items() if option in takes)
            problems.append(f"{option} = given: {f'not with {way}' if way else f'only with {others}'}; leave it out")
    for what, given in (("RUN", runs), ("--file", options["--file"])):
        if way in SHOW_ONE and isinstance(given, list) and len(given) > 1:
            problems.append(f"{what} = {len(given)} of them: the page of {way} shows one; leave out the others")
    if problems:
        raise ConfigError(problems)
    return way
