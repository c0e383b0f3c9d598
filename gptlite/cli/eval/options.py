"""The options of `gptlite eval`, and which of them apply to each kind of output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from typer import Argument, Option

from gptlite.errors import ConfigError

Runs = Annotated[
    list[str] | None,
    Argument(metavar="RUN", help="Names or folders of runs, or checkpoint folders. Default: the newest run."),
]
Files = Annotated[
    list[str] | None,
    Option("--file", "-f", metavar="FILE", help="Score this text instead of the validation text. Repeatable."),
]
Stride = Annotated[
    int | None,
    Option(
        metavar="N",
        help="Tokens between the starts of windows. Fewer give each token more context and take longer. "
        "Default: block_size.",
    ),
]
ByPosition = Annotated[
    bool, Option("--by-position", help="Plot the loss over the position in the context, as an SVG file.")
]
Memorised = Annotated[
    bool, Option("--memorised", help="Sample from the models and search their training text for copied passages.")
]
PerToken = Annotated[
    bool, Option("--per-token", help="Write an HTML page that colours each token of the text by its loss.")
]
Attention = Annotated[
    str | None, Option(metavar="TEXT", help="Write an HTML page with the attention of every head on TEXT.")
]
Out = Annotated[
    str | None,
    Option("--out", "-o", metavar="FILE", help="The plot or page. Default: RUN-by-position.svg and the like."),
]
Json = Annotated[bool, Option("--json", help="Print one JSON object.")]

# What `gptlite eval` can show, and the options that apply to it; None: the table of scores.
ALLOWED: Mapping[str | None, Sequence[str]] = {
    None: ("--file", "--stride", "--json"),
    "--by-position": ("--file", "--out"),
    "--memorised": ("--json",),
    "--per-token": ("--file", "--out"),
    "--attention": ("--out",),
}
ONE_AT_A_TIME = ("--per-token", "--attention")  # pages of one run and one text


def select_mode(modes: Mapping[str, bool], options: Mapping[str, object], runs: Sequence[str] | None) -> str | None:
    """Return the mode that is asked for, None for the table of scores.

    modes: whether each was given. options: their values. ConfigError for several modes, for options without effect in
    the mode, and for several runs or files where a page shows one.
    """
    asked = [mode for mode, given in modes.items() if given]
    mode = asked[0] if asked else None
    problems = [f"{mode} and {other} exclude each other. Choose one." for other in asked[1:]]
    for option, value in options.items():
        if value not in (None, False, []) and option not in ALLOWED[mode]:
            if mode:
                problems.append(f"{option} has no effect with {mode}. Leave it out.")
            else:
                accepting = [str(other) for other, allowed in ALLOWED.items() if option in allowed]
                problems.append(f"{option} has no effect without {' or '.join(accepting)}. Leave it out.")
    for noun, values in (("run", runs), ("file", options["--file"])):
        if mode in ONE_AT_A_TIME and isinstance(values, list) and len(values) > 1:
            problems.append(f"{mode} shows one {noun}, and {len(values)} are given. Leave out the others.")
    if problems:
        raise ConfigError(problems)
    return mode
