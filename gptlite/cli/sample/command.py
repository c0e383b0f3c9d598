"""`gptlite sample`: write text with a trained model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from gptlite.cli.options import CheckpointOption, ContextOption, RunArgument, SetOption, check_keys
from gptlite.cli.sample import options
from gptlite.cli.sample.output import SampleWriter
from gptlite.cli.sample.prompts import answer_prompts, read_prompts
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
    # Importing torch takes a second, so the command line is checked first.
    from gptlite.runs.find import run_name

    file = None if out is None else writable(out)
    is_page = explain and cfg.sample.beams is not None
    if is_page:
        file = output_path([run_name(found)], out, "beams.html")
        if len(prompts) > 1:
            more = f"{len(prompts)} are given. Leave out the others."
            raise ConfigError(f"--beams --explain shows one prompt, and {more}")
    console.say(f"checkpoint: {found.path}")
    texts: list[str] = []
    from gptlite.inference.load import open_for_decoding

    with located("--context", at="context"), open_for_decoding(found, cfg.run, context=context_length) as model:
        title, put = f"{run_name(found)}, step {found.step}", emit if file is None else texts.append
        writer = SampleWriter(model, title, cfg.sample, put, console.say, explain, as_json, unknown == "skip")
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
