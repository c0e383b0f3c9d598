"""`gptlite sample`: write text with a trained model."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from gptlite.cli.options import CheckpointOption, ContextOption, RunArgument, SetOption, check_keys
from gptlite.cli.sample import options
from gptlite.cli.sample.output import SampleWriter
from gptlite.cli.sample.prompts import answer_prompts, known_text, read_prompts, usable_prompt
from gptlite.cli.terminal import Console, emit, output_path, writable, write_output
from gptlite.errors import ConfigError, located
from gptlite.formatting import Say

if TYPE_CHECKING:
    from gptlite.config.schema import RunConfig
    from gptlite.runs.checkpoint import Checkpoint


@options.takes_section_keys
def sample(
    context: typer.Context,
    run: RunArgument = None,
    prompt: options.Prompt = None,
    prompt_file: options.PromptFile = None,
    unknown: options.Unknown = "error",
    stream: options.Stream = None,
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
    found, cfg = select_model(context, run, checkpoint, set_, console.say)
    prompts = read_prompts(prompt, prompt_file, cfg.data.encoding)
    if "" in (logprob or ()):
        raise ConfigError("the text is empty. Give at least one character.", where="--logprob")
    is_page = explain and cfg.sample.beams is not None
    file = page_path(found, len(prompts), out) if is_page else None if out is None else writable(out)
    console.say(f"checkpoint: {found.path}")
    texts: list[str] = []
    # Importing torch takes a second, so the command line is checked first.
    from gptlite.inference.load import open_for_decoding
    from gptlite.runs.find import run_name

    with located("--context", at="context"), open_for_decoding(found, cfg.run, context=context_length) as model:
        title, put = f"{run_name(found)}, step {found.step}", emit if file is None else texts.append
        writer = SampleWriter(model, title, cfg.sample, put, stream is not False, explain, as_json)
        write_all(writer, prompts, logprob, interactive=interactive, skip=unknown == "skip", say=console.say)
    if file is not None:
        write_output(file, "".join(texts))
    if is_page:
        emit(f"{file}\n")


def write_all(
    writer: SampleWriter,
    prompts: Sequence[tuple[str, str]],
    logprob: Sequence[str] | None,
    *,
    interactive: bool,
    skip: bool,
    say: Say,
) -> None:
    """Answer the prompts, each with its name. logprob: the values of --logprob. skip: leave out unknown characters."""
    usable = partial(usable_prompt, writer.model, skip=skip, say=say)
    if interactive:
        answer_prompts(lambda line, repeats: writer.write([usable("prompt", line)], repeats), say)
        return
    texts = [usable(*prompt) for prompt in prompts]
    if logprob:
        known = partial(known_text, writer.model, "--logprob", skip=skip, say=say)
        writer.write_logprobs(texts, [known(text) for text in logprob])
    else:
        writer.write(texts)


def page_path(found: Checkpoint, n_prompts: int, out: str | None) -> Path:
    """Return where --beams --explain writes its page. out: the value of --out. ConfigError for several prompts."""
    from gptlite.runs.find import run_name

    if n_prompts > 1:
        raise ConfigError(f"--beams --explain shows one prompt, and {n_prompts} are given. Leave out the others.")
    return output_path([run_name(found)], out, "beams.html")


def select_model(
    context: typer.Context, run: str | None, which: str | None, sets: list[str] | None, say: Say
) -> tuple[Checkpoint, RunConfig]:
    """Return the checkpoint and its config, changed by the options. ConfigError for options without effect.

    which: the value of --checkpoint. sets: those of --set.
    """
    from gptlite.runs.find import choose_checkpoint, load_checkpoint_config
    from gptlite.runs.run import runs_folder

    overrides, checked = options.config_overrides(context), check_keys("sample", sets)
    found = choose_checkpoint(runs_folder(), run or "latest", which, say)
    with located("--set"):
        cfg = load_checkpoint_config(found, [*checked, *overrides])
    options.refuse_ineffective(context, cfg.sample, checked, overrides)
    return found, cfg
