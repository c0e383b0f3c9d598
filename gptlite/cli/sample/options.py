"""The options of `gptlite sample`: which of them set keys of the config, and which have no effect together."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Context, Option

from gptlite.cli.options import given_options, option_name
from gptlite.errors import ConfigError

if TYPE_CHECKING:
    from gptlite.config.loading import Override
    from gptlite.config.sampling import SampleSection


def _key(kind: Any, metavar: str, help: str, *names: str) -> Any:
    return Annotated[kind | None, Option(*names, metavar=metavar, help=help)]


# Those that set the key of section sample with their name. A new one needs that key, and a line here.
SECTION: Mapping[str, Any] = {
    "max_new_tokens": _key(int, "N", "Tokens to write (sample.max_new_tokens)."),
    "temperature": _key(float, "X", "0: the likeliest token; 1: the model's own distribution.", "--temperature", "-t"),
    "top_k": _key(int, "N", "Draw from the N likeliest tokens."),
    "top_p": _key(float, "P", "Draw from the likeliest tokens that together have probability P."),
    "min_p": _key(float, "P", "Draw from tokens at least P times as probable as the likeliest."),
    "repetition_penalty": _key(float, "X", "Above 1: tokens in the text so far become less likely."),
    "beams": _key(int, "N", "Search for the likeliest text with N beams."),
    "length_penalty": _key(float, "X", "With --beams: 0 favours short texts, 1 compares means per token."),
    "n": _key(int, "N", "Samples per prompt; with --beams the N best.", "-n"),
    "seed": _key(int, "N", "Equal seeds give equal text."),
    "stop": _key(list[str], "TEXT", "End before this text. Repeatable."),
    "stop_tokens": _key(list[int], "ID", "End before this token. Repeatable.", "--stop-token"),
}

Prompt = Annotated[
    list[str] | None,
    Option("--prompt", "-p", metavar="TEXT", help="Text that the model continues; - reads standard input. Repeatable."),
]
PromptFile = Annotated[list[str] | None, Option(metavar="FILE", help="Read a prompt from a file. Repeatable.")]
Logprob = Annotated[
    list[str] | None, Option(metavar="TEXT", help="Print log p of TEXT after the prompt, no samples. Repeatable.")
]
Explain = Annotated[
    bool,
    Option("--explain", help="Show the five likeliest tokens at each step; with --beams an HTML page of the search."),
]
Json = Annotated[
    bool, Option("--json", help="Print one JSON object per sample: text, token ids, log p, finish reason.")
]
Out = Annotated[str | None, Option("--out", "-o", metavar="FILE", help="Write to a file, replacing it.")]
Interactive = Annotated[bool, Option("--interactive", "-i", help="Read prompts from the terminal.")]
Unknown = Annotated[Literal["error", "skip"], Option(help="What to do about characters that the model has no id for.")]

# Options and config keys that have no effect together with another option; "sample.*" is the whole section.
INEFFECTIVE: Mapping[str, Collection[str]] = {
    "temperature 0": ("sample.top_k", "sample.top_p", "sample.min_p", "sample.seed", "sample.n"),
    "--beams": ("sample.temperature", "sample.seed"),
    "--beams --explain": ("--json", "--interactive"),
    "--logprob": ("sample.*", "--explain", "--interactive"),
    "--interactive": ("--prompt", "--prompt-file", "--json", "--out"),
}


def takes_section_keys(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of SECTION after those for prompts. It finds their values in its context."""
    own = inspect.signature(command, eval_str=True)
    parameters = list(own.parameters.values())
    after = list(own.parameters).index("prompt_file") + 1
    parameters[after:after] = [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=option)
        for name, option in SECTION.items()
    ]

    @functools.wraps(command)
    def run(**values: Any) -> None:
        command(**{name: value for name, value in values.items() if name not in SECTION})

    run.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    return run


def config_overrides(context: Context) -> list[Override]:
    """Return what the given options of SECTION change in the config."""
    from gptlite.config.loading import Override

    # beams first: of two keys that exclude each other, the error is about the later one.
    params = sorted(context.command.params, key=lambda param: param.name != "beams")
    values = {param: context.params[str(param.name)] for param in params if param.name in SECTION}
    return [
        Override(option_name(param), f"sample.{param.name}", list(value) if isinstance(value, tuple) else value)
        for param, value in values.items()
        if value not in (None, (), [])
    ]


def refuse_ineffective(
    context: Context, section: SampleSection, sets: Sequence[str], overrides: Sequence[Override]
) -> None:
    """ConfigError for every option that has no effect together with another.

    section: the config with all options applied. sets: the values of --set. overrides: what `config_overrides` found.
    """
    given = {option: option for option in given_options(context)}
    active = set(given)
    if section.beams is not None:
        active |= {"--beams", "--beams --explain"} if "--explain" in given else {"--beams"}
    elif section.temperature == 0 and "--logprob" not in given:
        active.add("temperature 0")
    given |= {each.partition("=")[0].strip(): f"--set {each}" for each in sets}
    given |= {override.key: override.where for override in overrides}
    problems = [
        f"{typed} has no effect with {other}. Leave one of them out."
        for other, ineffective in INEFFECTIVE.items()
        if other in active
        for key, typed in given.items()
        if key in ineffective or ("sample.*" in ineffective and key.startswith("sample."))
    ]
    if problems:
        raise ConfigError(problems)
