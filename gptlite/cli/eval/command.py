"""`gptlite eval`: score models on text, plot their loss, show their attention, look for copies and exposure bias."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from typer import Argument, Context, Option

from gptlite.cli.options import CheckpointOption, ContextOption, SetOption, check_keys, check_together, given_options
from gptlite.cli.terminal import Console, emit
from gptlite.errors import ConfigError, Problem

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
ExposureBias = Annotated[
    bool, Option("--exposure-bias", help="Score true text after text that the model wrote itself, token by token.")
]
PerToken = Annotated[
    bool, Option("--per-token", help="Write an HTML page that colours each token of the text by its loss.")
]
Attention = Annotated[
    str | None, Option(metavar="TEXT", help="Write an HTML page with the attention of every head on TEXT.")
]
Follow = Annotated[
    str | None,
    Option(metavar="TEXT", help="Write an HTML page that follows the last token of TEXT through every layer."),
]
Out = Annotated[
    str | None,
    Option("--out", "-o", metavar="FILE", help="The plot or page. Default: RUN-by-position.svg and the like."),
]
Json = Annotated[bool, Option("--json", help="Print one JSON object.")]

PAGES = ("--per-token", "--attention", "--follow")  # of one run and one text
# What can be shown in place of the table of scores, and the options that it excludes.
EXCLUDES = {
    "--by-position": ("--memorised", "--exposure-bias", *PAGES, "--stride", "--json"),
    "--memorised": ("--exposure-bias", *PAGES, "--file", "--stride", "--context"),
    "--exposure-bias": (*PAGES, "--stride"),
    "--per-token": ("--attention", "--follow", "--stride", "--json"),
    "--attention": ("--follow", "--file", "--stride", "--context", "--json"),
    "--follow": ("--file", "--stride", "--context", "--json"),
}
NEEDS = {"--out": ("--by-position", *PAGES)}


def evaluate(
    context: Context,
    runs: Runs = None,
    files: Files = None,
    stride: Stride = None,
    by_position: ByPosition = False,
    memorised: Memorised = False,
    exposure_bias: ExposureBias = False,
    per_token: PerToken = False,
    attention: Attention = None,
    follow: Follow = None,
    out: Out = None,
    context_length: ContextOption = None,
    checkpoint: CheckpointOption = None,
    as_json: Json = False,
    set_: SetOption = None,
) -> None:
    """Score models on their validation text or on files: loss, perplexity, bits per byte, bits per character."""
    from gptlite.cli.eval import measures
    from gptlite.cli.eval.inputs import select_models
    from gptlite.cli.eval.pages import write_page

    given = given_options(context)
    mode = next((option for option in EXCLUDES if option in given), None)
    problems = check_together({option: option for option in given}, EXCLUDES, NEEDS)
    if mode in PAGES and max(len(runs or ()), len(files or ())) > 1:
        problems.append(Problem(f"{mode} shows one text of one run. Leave out the others."))
    if problems:
        raise ConfigError(problems)
    console = Console()
    models = select_models(runs or [], checkpoint, check_keys("eval", set_), context_length, console.say)
    for model in models:
        console.say(f"checkpoint: {model.checkpoint.path}")
        for file in files or ():
            if str(Path(file).absolute()) in model.cfg.data.sources:
                console.say(
                    f"{file}: {model.name} was trained on this text, so its score there is no test of the model"
                )
    if mode is None:
        values, describe = measures.measure_scores(models, files, stride), measures.describe_scores
    elif mode == "--memorised":
        values, describe = measures.measure_copies(models), measures.describe_copies
    elif mode == "--exposure-bias":
        values, describe = measures.measure_exposure(models, files), measures.describe_exposure
    else:
        path = write_page(mode, models, files, attention if follow is None else follow, out)
        emit(f"{path}\n")
        return
    for line in [json.dumps(values)] if as_json else describe(values):
        emit(f"{line}\n")
