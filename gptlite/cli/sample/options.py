"""The options of `gptlite sample`, and which of them would do nothing beside others."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from gptlite.cli.options import used
from gptlite.errors import ConfigError

if TYPE_CHECKING:
    from gptlite.config.loading import Override

Prompt = Annotated[
    list[str] | None,
    typer.Option(
        "--prompt", "-p", metavar="TEXT", help="What the model goes on from; - reads standard input. May be repeated."
    ),
]
PromptFile = Annotated[
    list[str] | None,
    typer.Option("--prompt-file", metavar="FILE", help="A prompt from a file. May be repeated."),
]
MaxNewTokens = Annotated[
    int | None, typer.Option("--max-new-tokens", metavar="N", help="Tokens to write (sample.max_new_tokens).")
]
Temperature = Annotated[
    float | None,
    typer.Option("--temperature", "-t", metavar="X", help="0: always the likeliest token; 1: as learned."),
]
TopK = Annotated[int | None, typer.Option("--top-k", metavar="N", help="Only the N likeliest tokens.")]
TopP = Annotated[
    float | None, typer.Option("--top-p", metavar="P", help="Only the likeliest tokens that reach probability P.")
]
MinP = Annotated[
    float | None,
    typer.Option("--min-p", metavar="P", help="Only tokens at least P times as probable as the likeliest."),
]
RepetitionPenalty = Annotated[
    float | None,
    typer.Option("--repetition-penalty", metavar="X", help="Above 1: what was written already becomes less likely."),
]
Beams = Annotated[int | None, typer.Option("--beams", metavar="N", help="Search for the likeliest text, N at a time.")]
LengthPenalty = Annotated[
    float | None,
    typer.Option("--length-penalty", metavar="X", help="With --beams: 0 favours short texts, 1 compares means."),
]
Number = Annotated[int | None, typer.Option("-n", metavar="N", help="How many samples; with --beams the N best.")]
Seed = Annotated[int | None, typer.Option("--seed", metavar="N", help="Equal seeds write equal text.")]
Stop = Annotated[
    list[str] | None, typer.Option("--stop", metavar="TEXT", help="End before this text. May be repeated.")
]
StopToken = Annotated[
    list[int] | None, typer.Option("--stop-token", metavar="ID", help="End before this token. May be repeated.")
]
Logprob = Annotated[
    list[str] | None,
    typer.Option("--logprob", metavar="TEXT", help="Write nothing: log p of TEXT after the prompt. May be repeated."),
]
Explain = Annotated[bool, typer.Option("--explain", help="Show the five likeliest tokens at each step.")]
Stream = Annotated[
    bool | None, typer.Option("--stream/--no-stream", help="Show text as it comes, or when it is whole.")
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object a line: text, tokens, log p, why it ended.")]
Out = Annotated[str | None, typer.Option("--out", "-o", metavar="FILE", help="Write to a file, which is replaced.")]
Interactive = Annotated[bool, typer.Option("--interactive", "-i", help="Ask for one prompt after the other.")]
Unknown = Annotated[
    Literal["error", "skip"], typer.Option("--unknown", help="What becomes of characters that the model does not know.")
]

# The options that stand for a key of section sample, by that key.
OPTION_OF = {
    "beams": "--beams",  # of keys that clash the later one is blamed
    "max_new_tokens": "--max-new-tokens",
    "temperature": "--temperature",
    "top_k": "--top-k",
    "top_p": "--top-p",
    "min_p": "--min-p",
    "repetition_penalty": "--repetition-penalty",
    "length_penalty": "--length-penalty",
    "n": "-n",
    "seed": "--seed",
    "stop": "--stop",
    "stop_tokens": "--stop-token",
}

# What has no effect beside an option, by parameter; "sample.*" stands for every key of the section.
IDLE_BESIDE: Mapping[str, Collection[str]] = {
    "greedy": ("sample.top_k", "sample.top_p", "sample.min_p", "sample.seed", "sample.n"),
    "beams": ("sample.temperature", "sample.seed", "explain", "stream"),
    "logprob": ("sample.*", "explain", "stream", "interactive"),
    "interactive": ("prompt", "prompt_file", "as_json", "out"),
    "explain": ("stream",),
    "as_json": ("stream",),
    "out": ("stream",),
}


def overrides(parameters: Mapping[str, object]) -> list[Override]:
    """What the given options change in the config."""
    # Options that may be repeated come as tuples, empty where they were left out.
    given = {key: list(x) or None if isinstance(x := parameters[key], tuple) else x for key in OPTION_OF}
    return used({option: (f"sample.{key}", given[key]) for key, option in OPTION_OF.items()})


def refuse_idle(parameters: Mapping[str, object], sets: Sequence[str], overrides: Sequence[Override]) -> None:
    """ConfigError for every option that would do nothing beside another.

    parameters: of the command, by name; falsy are those left out, None for --stream. sets: what was given with --set.
    """
    typed = {override.partition("=")[0].strip(): f"--set: {override}" for override in sets}
    typed |= {override.key: override.where for override in overrides}
    problems = []
    for name, idle in IDLE_BESIDE.items():
        if parameters[name]:
            found = [_option(other) for other in idle if parameters.get(other)]
            whole_section = "sample.*" in idle
            found += [
                words for key, words in typed.items() if key in idle or (whole_section and key.startswith("sample."))
            ]
            problems += [f"{words}: does nothing beside {_option(name)}; leave one of them out" for words in found]
    if problems:
        raise ConfigError(problems)


def _option(parameter: str) -> str:
    names = {"as_json": "--json", "greedy": "temperature 0"}
    return names.get(parameter, "--" + parameter.replace("_", "-"))
