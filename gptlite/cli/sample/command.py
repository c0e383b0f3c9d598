"""`gptlite sample`: write text with a trained model."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import typer

from gptlite.cli.eval.inputs import select_models
from gptlite.cli.options import STANDARD_INPUT, CheckpointOption, ContextOption, RunArgument, SetOption, check_keys
from gptlite.cli.sample import options
from gptlite.cli.sample.output import SampleWriter
from gptlite.cli.terminal import Console, check_text_file, emit, output_path, writable, write_output
from gptlite.data.sources.charset import decode
from gptlite.errors import ConfigError, UserError, located
from gptlite.formatting import Say
from gptlite.storage.files import storage_errors

PROMPT_MARK = "> "


@options.takes_section_keys
def sample(
    context: typer.Context,
    run: RunArgument = None,
    prompt: options.Prompt = None,
    prompt_file: options.PromptFile = None,
    unknown: options.Unknown = "error",
    explain: options.Explain = False,
    as_json: options.Json = False,
    out: options.Out = None,
    interactive: options.Interactive = False,
    logprob: options.Logprob = None,
    context_length: ContextOption = None,
    checkpoint: CheckpointOption = None,
    set_: SetOption = None,
) -> None:
    """Write text with a trained model. Defaults come from section sample of the run's config."""
    console = Console()
    overrides, sets = options.config_overrides(context), check_keys("sample", set_)
    (model,) = select_models([run] if run else [], checkpoint, [*sets, *overrides], context_length, console.say)
    section = model.cfg.sample
    options.refuse_ineffective(context, section, sets, overrides)
    prompts = read_prompts(prompt, prompt_file, model.cfg.data.encoding)
    if "" in (logprob or ()):
        raise ConfigError("the text is empty. Give at least one character.", where="--logprob")
    file = None if out is None else writable(out)
    is_page = explain and section.beams is not None
    if is_page:
        file = output_path([model.name], out, "beams.html")
        if len(prompts) > 1:
            more = f"{len(prompts)} are given. Leave out the others."
            raise ConfigError(f"--beams --explain shows one prompt, and {more}")
    console.say(f"checkpoint: {model.checkpoint.path}")
    texts: list[str] = []
    # Importing torch takes a second, so the command line is checked first.
    from gptlite.inference.load import open_for_decoding

    title, put = f"{model.name}, step {model.checkpoint.step}", emit if file is None else texts.append
    opened = open_for_decoding(model.checkpoint, model.cfg.run, context=context_length)
    with located("--context", at="context"), opened as loaded:
        writer = SampleWriter(loaded, title, section, put, console.say, explain, as_json, unknown == "skip")
        if interactive:
            answer_prompts(lambda line, repeats: writer.write([("prompt", line)], repeats), console.say)
        elif logprob:
            writer.write_logprobs(prompts, logprob)
        else:
            writer.write(prompts)
    if file is not None:
        write_output(file, "".join(texts))
    if is_page:
        emit(f"{file}\n")


def read_prompts(typed: Sequence[str] | None, files: Sequence[str] | None, encoding: str) -> list[tuple[str, str]]:
    """Return (name in messages, text) of every prompt, those of the command line first; one empty prompt by default.

    The last newline of a file or of standard input is removed, since editors and `echo` add it. ConfigError if
    standard input is asked for twice, DataError for what is not text, StorageError for unreadable files.
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
    text = decode(data, encoding, "none", where)
    return text.removesuffix("\r\n") if text.endswith("\r\n") else text.removesuffix("\n")


def answer_prompts(answer: Callable[[str, int], None], say: Say) -> None:
    """Answer each line until the input ends. Ctrl-C stops an answer; an empty line repeats the prompt.

    answer: takes the prompt and how often it was repeated.
    """
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
            answer(prompt, repeats)
        except KeyboardInterrupt:
            say("stopped")
        except UserError as error:
            for problem in error.problems:
                say(f"error: {problem}")
