"""`gptlite sample`: write text with a trained model."""

from __future__ import annotations

import typer

from gptlite.cli.eval.inputs import select_models
from gptlite.cli.options import CheckpointOption, ContextOption, RunArgument, SetOption, check_keys
from gptlite.cli.sample import options
from gptlite.cli.sample.output import SampleWriter
from gptlite.cli.sample.prompts import answer_prompts, read_prompts
from gptlite.cli.terminal import Console, emit, output_path, writable, write_output
from gptlite.errors import ConfigError, located


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
