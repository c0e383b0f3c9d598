"""`gptlite sample`: write text with a trained model. Options, which of them have no effect together, prompts."""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Context, Option

from gptlite.cli.options import (
    STANDARD_INPUT,
    CheckpointOption,
    ContextOption,
    RunArgument,
    SetOption,
    check_keys,
    check_together,
    given_options,
    option_name,
)
from gptlite.cli.sample.output import SampleWriter
from gptlite.cli.terminal import Console, check_text_file, emit, output_path, write_output
from gptlite.data.sources.charset import decode_pieces
from gptlite.errors import ConfigError, UserError, located
from gptlite.formatting import Say
from gptlite.storage.files import storage_errors

if TYPE_CHECKING:
    from gptlite.config.loading import Override
    from gptlite.config.training import SampleSection

PROMPT_MARK = "> "


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

# Options and keys of the config that have no effect together with another option.
EXCLUDES = {
    "temperature 0": ("sample.top_k", "sample.top_p", "sample.min_p", "sample.seed", "sample.n"),
    "--beams": ("sample.temperature", "sample.seed"),
    "--beams --explain": ("--json", "--interactive"),
    "--logprob": (*(f"sample.{key}" for key in SECTION), "--explain", "--interactive"),
    "--interactive": ("--prompt", "--prompt-file", "--json", "--out"),
}


def sample(
    context: Context,
    run: RunArgument = None,
    prompt: Prompt = None,
    prompt_file: PromptFile = None,
    unknown: Unknown = "error",
    explain: Explain = False,
    as_json: Json = False,
    out: Out = None,
    interactive: Interactive = False,
    logprob: Logprob = None,
    context_length: ContextOption = None,
    checkpoint: CheckpointOption = None,
    set_: SetOption = None,
    **section_keys: Any,
) -> None:
    """Write text with a trained model. Defaults come from section sample of the run's config."""
    from gptlite.cli.eval.inputs import select_models

    console = Console()
    overrides, sets = config_overrides(context), check_keys("sample", set_)
    (model,) = select_models([run] if run else [], checkpoint, [*sets, *overrides], context_length, console.say)
    section = model.cfg.sample
    refuse_ineffective(context, section, sets, overrides)
    prompts = read_prompts(prompt, prompt_file, model.cfg.data.encoding)
    is_page = explain and section.beams is not None
    file = output_path([model.name], out, "beams.html" if is_page else "") if is_page or out is not None else None
    if is_page and len(prompts) > 1:
        raise ConfigError(f"--beams --explain shows one prompt, and {len(prompts)} are given. Leave out the others.")
    console.say(f"checkpoint: {model.checkpoint.path}")
    texts: list[str] = []
    # Importing torch takes a second, so the command line is checked first.
    from gptlite.compute.device import settings
    from gptlite.inference.load import load_checkpoint

    title, put = f"{model.name}, step {model.checkpoint.step}", emit if file is None else texts.append
    with located("--context", at="context"):
        loaded = load_checkpoint(model.checkpoint, model.cfg.run, decoding=True, context=context_length)
    with settings(loaded.compute, deterministic=model.cfg.run.deterministic):
        writer = SampleWriter(loaded, title, section, put, console.say, explain, as_json, unknown == "skip")
        if interactive:
            answer_prompts(writer, console.say)
        elif logprob:
            writer.write_logprobs(prompts, logprob)
        else:
            writer.write(prompts)
    if file is not None:
        write_output(file, "".join(texts))
    if is_page:
        emit(f"{file}\n")


# Typer reads the options from the signature: those of SECTION, after those for prompts, in place of **section_keys.
_signature = inspect.signature(sample, eval_str=True)
_parameters = [*_signature.parameters.values()][:-1]
_parameters[4:4] = [
    inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=option)
    for name, option in SECTION.items()
]
sample.__signature__ = _signature.replace(parameters=_parameters)  # type: ignore[attr-defined]


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
    if section.beams is not None:
        given["--beams"] = "--beams"
        if "--explain" in given:
            given["--beams --explain"] = "--beams --explain"
    elif section.temperature == 0 and "--logprob" not in given:
        given["temperature 0"] = "temperature 0"
    given |= {each.partition("=")[0].strip(): f"--set {each}" for each in sets}
    given |= {override.key: override.where for override in overrides}
    if problems := check_together(given, EXCLUDES, {}):
        raise ConfigError(problems)


def read_prompts(typed: Sequence[str] | None, files: Sequence[str] | None, encoding: str) -> list[tuple[str, str]]:
    """Return (name in messages, text) of every prompt, those of the command line first; one empty prompt by default.

    The last newline of a file or of standard input is removed, since editors and `echo` add it. DataError
    for what is not text, StorageError for unreadable files.
    """
    typed, files = typed or [], files or []
    if typed.count(STANDARD_INPUT) > 1:
        raise ConfigError("standard input can be read only once. Leave out the others.", where="--prompt -")
    texts = []
    for text in typed:
        if text == STANDARD_INPUT:
            text = _decode(sys.stdin.buffer.read(), "standard input", encoding)
        texts.append(("--prompt", text))
    for file in files:
        where = f"--prompt-file {file}"
        check_text_file(file, where)
        with storage_errors(Path(file), "read"):
            texts.append((where, _decode(Path(file).read_bytes(), where, encoding)))
    return texts or [("--prompt", "")]


def _decode(data: bytes, where: str, encoding: str) -> str:
    text = "".join(decode_pieces([data], encoding, "none", where))
    return text.removesuffix("\r\n") if text.endswith("\r\n") else text.removesuffix("\n")


def answer_prompts(writer: SampleWriter, say: Say) -> None:
    """Answer each line until the input ends. Ctrl-C stops an answer; an empty line repeats the prompt."""
    say(
        "Each line is a prompt. An empty line repeats the last one with another seed. Ctrl-C stops a text, Ctrl-D ends."
    )
    if sys.stdin.isatty():
        with contextlib.suppress(ImportError):  # some builds of Python have none
            import readline  # noqa: F401  # so that the arrow keys recall earlier lines
    prompt, repeats = "", 0
    while True:
        try:
            line = input(PROMPT_MARK)
            prompt, repeats = (line, 0) if line else (prompt, repeats + 1)
        except EOFError:
            print()
            return
        except KeyboardInterrupt:
            print()
            continue
        except UnicodeDecodeError as error:
            say(f"error: prompt: byte {error.start} is not {error.encoding}. Type the line again.")
            continue
        try:
            writer.write([("prompt", prompt)], repeats)
        except KeyboardInterrupt:
            say("stopped")
        except UserError as error:
            for problem in error.problems:
                say(f"error: {problem}")
