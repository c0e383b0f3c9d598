"""`gptlite sample`: let a trained model write."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import typer

from gptlite.cli.files import writable, write_output
from gptlite.cli.options import CheckpointOption, RunArgument, SetOption, check_keys
from gptlite.cli.sample import options
from gptlite.cli.sample.interactive import converse
from gptlite.cli.sample.output import SampleWriter, Show
from gptlite.cli.sample.prompts import known_text, read_prompts, usable_prompt
from gptlite.cli.terminal import Console, emit
from gptlite.errors import ConfigError, located

if TYPE_CHECKING:
    from gptlite.config.schema import RunConfig
    from gptlite.runs.checkpoint import Checkpoint


def sample(
    context: typer.Context,
    run: RunArgument = None,
    prompt: options.Prompt = None,
    prompt_file: options.PromptFile = None,
    max_new_tokens: options.MaxNewTokens = None,
    temperature: options.Temperature = None,
    top_k: options.TopK = None,
    top_p: options.TopP = None,
    min_p: options.MinP = None,
    repetition_penalty: options.RepetitionPenalty = None,
    beams: options.Beams = None,
    length_penalty: options.LengthPenalty = None,
    n: options.Number = None,
    seed: options.Seed = None,
    stop: options.Stop = None,
    stop_tokens: options.StopToken = None,
    unknown: options.Unknown = "error",
    stream: options.Stream = None,
    explain: options.Explain = False,
    as_json: options.Json = False,
    out: options.Out = None,
    interactive: options.Interactive = False,
    logprob: options.Logprob = None,
    checkpoint: CheckpointOption = None,
    set_: SetOption = None,
) -> None:
    """Write text with a trained model. What is not given comes from the run's config (section sample)."""
    from gptlite.runs.find import choose_checkpoint, config_of
    from gptlite.runs.run import runs_folder

    console = Console()
    overrides = options.overrides(context.params)
    sets = check_keys("sample", set_)
    found = choose_checkpoint(runs_folder(), run or "latest", checkpoint, console.say)
    with located("--set"):
        cfg = config_of(found, [*sets, *overrides])
    greedy = cfg.sample.temperature == 0 and cfg.sample.beams is None and not logprob
    options.refuse_idle({**context.params, "beams": cfg.sample.beams, "greedy": greedy}, sets, overrides)
    prompts = read_prompts(prompt, prompt_file, cfg.data.encoding)
    if "" in (logprob or ()):
        raise ConfigError('--logprob = "": a text of one character or more')
    file = None if out is None else writable(out)
    console.say(f"checkpoint: {found.path}")
    show = Show(stream=stream is not False, explain=explain, as_json=as_json)
    texts: list[str] = []
    with writer_of(found, cfg, emit if file is None else texts.append, show) as writer:
        usable = partial(usable_prompt, writer.model, skip=unknown == "skip", say=console.say)
        known = partial(known_text, writer.model, "--logprob", skip=unknown == "skip", say=console.say)
        if interactive:
            converse(lambda line, again: writer.write([usable("prompt", line)], again), console.say)
        elif logprob:
            writer.judge([usable(*prompt) for prompt in prompts], [known(text) for text in logprob])
        else:
            writer.write([usable(*prompt) for prompt in prompts])
    if file is not None:
        write_output(file, "".join(texts))


@contextmanager
def writer_of(found: Checkpoint, cfg: RunConfig, put: Callable[[str], None], show: Show) -> Iterator[SampleWriter]:
    """A checkpoint's model, ready to write."""
    # torch: not before the command line has been checked.
    from gptlite.compute.device import settings
    from gptlite.inference.language_model import load_checkpoint

    model = load_checkpoint(found, cfg.run, decoding=True)
    with settings(model.compute, deterministic=cfg.run.deterministic):
        yield SampleWriter(model, cfg.sample, put, show)
