"""`gptlite sample`: let a trained model write."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from gptlite.cli.options import CheckpointOption, RunArgument, SetOption, check_keys, used
from gptlite.cli.terminal import Console, emit
from gptlite.errors import naming

if TYPE_CHECKING:
    from gptlite.inference.load import Model


def sample(
    run: RunArgument = None,
    prompt: Annotated[str, typer.Option("--prompt", "-p", help="What the model goes on from.")] = "",
    max_new_tokens: Annotated[
        int | None, typer.Option("--max-new-tokens", metavar="N", help="Tokens to write (sample.max_new_tokens).")
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option("--temperature", "-t", metavar="X", help="0: always the likeliest token; 1: as learned."),
    ] = None,
    top_k: Annotated[int | None, typer.Option("--top-k", metavar="N", help="Only the N likeliest tokens.")] = None,
    top_p: Annotated[
        float | None, typer.Option("--top-p", metavar="P", help="Only the likeliest tokens that reach probability P.")
    ] = None,
    n: Annotated[int | None, typer.Option("-n", metavar="N", help="How many samples.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", metavar="N", help="Equal seeds write equal text.")] = None,
    stop: Annotated[
        list[str] | None, typer.Option("--stop", metavar="TEXT", help="End before this text. May be repeated.")
    ] = None,
    checkpoint: CheckpointOption = None,
    set_: SetOption = None,
) -> None:
    """Write text with a trained model. What is not given comes from the run's config (section sample)."""
    from gptlite.runs.choosing import choose_checkpoint, config_of
    from gptlite.runs.rundir import runs_folder

    console = Console()
    sets = check_keys("sample", set_)
    found = choose_checkpoint(runs_folder(), run or "latest", checkpoint, console.say)
    options = {
        "--max-new-tokens": ("sample.max_new_tokens", max_new_tokens),
        "--temperature": ("sample.temperature", temperature),
        "--top-k": ("sample.top_k", top_k),
        "--top-p": ("sample.top_p", top_p),
        "-n": ("sample.n", n),
        "--seed": ("sample.seed", seed),
        "--stop": ("sample.stop", stop),
    }
    cfg = config_of(found, [*sets, *used(options)])
    console.say(f"checkpoint: {found.path}")
    # torch: not before the command line has been checked.
    from gptlite.compute.device import settings
    from gptlite.inference.generate import Decoding
    from gptlite.inference.load import load_checkpoint

    model = load_checkpoint(found, cfg.run, decoding=True)
    warn_of_long_prompt(model, prompt, console.say)
    how = Decoding(
        cfg.sample.max_new_tokens, cfg.sample.temperature, cfg.sample.top_k, cfg.sample.top_p, tuple(cfg.sample.stop)
    )
    with settings(model.compute, deterministic=cfg.run.deterministic):
        for i, pieces in enumerate(model.samples(prompt, how, seed=cfg.sample.seed, n=cfg.sample.n)):
            if cfg.sample.n > 1:
                emit(f"--- {i + 1} of {cfg.sample.n}\n")
            with whole_lines():
                emit(prompt)
                for piece in pieces:
                    emit(piece)


@contextmanager
def whole_lines() -> Iterator[None]:
    """End the line that was begun, also where Ctrl-C cuts it short: what is said of that has a line of its own."""
    try:
        yield
    except KeyboardInterrupt:
        emit("\n")
        raise
    emit("\n")


def warn_of_long_prompt(model: Model, prompt: str, say: Callable[[str], None]) -> None:
    """Say so if the model cannot see all of the prompt."""
    with naming("text", "--prompt"):
        length, context = len(model.prompt_ids(prompt)), model.facts.model.block_size
    if length > context:
        say(f"prompt = {length} tokens: the model sees the last {context} of them (its block_size)")
