"""`gptlite train`: start a run, continue one, or describe one (--dry-run)."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Annotated

from typer import Option

from gptlite.cli.options import (
    ConfigOption,
    DataOption,
    OfflineOption,
    SetOption,
    forbid_downloads,
    located_text,
    with_standard_input,
)
from gptlite.cli.terminal import Console, emit, next_commands
from gptlite.cli.train.options import TrainOptions
from gptlite.compute.processes import is_main, slurm_tasks, world_size
from gptlite.errors import ConfigError, located
from gptlite.formatting import counted

if TYPE_CHECKING:
    from gptlite.cli.train.configs import Configs
    from gptlite.config.schema import RunConfig
    from gptlite.training.launch import Outcome
    from gptlite.training.listener import Listener

MinutesOption = Annotated[
    float | None,
    Option(
        metavar="M",
        help="Train for M minutes. Sizes that neither --config nor --set gives are chosen for the text, the time and "
        "the speed of this machine.",
    ),
]
SweepOption = Annotated[
    list[str] | None,
    Option(
        metavar="SECTION.KEY=A,B,...",
        help="Train a run for each value of a key and print a table. Repeated: for each combination.",
    ),
]

SAMPLED_TOKENS, SAMPLED_CHARACTERS = 200, 300  # at most, at the end of training


def train(
    config: ConfigOption = None,
    set_: SetOption = None,
    data: DataOption = None,
    minutes: MinutesOption = None,
    name: Annotated[
        str | None, Option(metavar="NAME", help="Name of the run. Default: the config's name, numbered if in use.")
    ] = None,
    resume: Annotated[
        str | None, Option(metavar="RUN", help="Continue this run; `latest` is the newest unfinished one.")
    ] = None,
    continue_: Annotated[
        bool, Option("--continue", help="With --name or --sweep: continue that run or sweep, or start it.")
    ] = False,
    quiet: Annotated[bool, Option("--quiet", "-q", help="Print errors only, and the result.")] = False,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Show the parameters, memory, disk, epochs and time of a run without making it.")
    ] = False,
    json_: Annotated[bool, Option("--json", help="With --dry-run: print one JSON object.")] = False,
    sweep: SweepOption = None,
    jobs: Annotated[
        int | None, Option(metavar="N", help="With --sweep: train N runs at a time, sharing the cores. Default: 1.")
    ] = None,
    offline: OfflineOption = False,
) -> None:
    """Train a model on a text. Ctrl-C stops after the current update and saves a checkpoint."""
    if offline:
        forbid_downloads()
    data = with_standard_input(data)
    options = TrainOptions(
        *(config, set_ or (), data or (), name, resume, continue_, quiet),
        *(dry_run, json_, sweep or (), jobs, minutes, offline),
    )
    if options.sweep:
        from gptlite.cli.sweep.command import run_sweep

        run_sweep(options)
        return
    if problems := options.problems():
        raise ConfigError(problems)
    from gptlite.training.listener import SilentListener

    listener = Console(quiet=quiet) if is_main() else SilentListener()
    wait_for_others(listener)
    if dry_run:
        print_dry_run(options, listener)
        return
    outcome = start_run(options, listener) if resume is None else resume_run(resume, options, listener)
    if is_main():
        emit("".join(f"{line}\n" for line in [*([] if quiet else show_samples(outcome)), *summarize(outcome)]))


def wait_for_others(listener: Listener) -> None:
    """Return once all processes of the run have come; whoever is missing is named before anything else happens."""
    if world_size() > 1:
        from gptlite.compute.rendezvous import gather

        gather("here", Console().say)
    elif slurm_tasks() > 1:
        listener.say(
            f"warning: Slurm started {slurm_tasks()} tasks, and each trains a run of its own. For one run, start "
            "one task on each machine, and torchrun in it."
        )


def print_dry_run(options: TrainOptions, listener: Listener) -> None:
    """Print what a run would do and need."""
    from gptlite.cli.train.configs import Configs
    from gptlite.cli.train.dry_run_report import describe_dry_run
    from gptlite.training.launch import dry_run

    with located_text(options.data):
        configs = Configs.of(options).timed()
        cfg = configs.load()
        announce(configs, cfg, listener)
        found = dry_run(cfg, base=configs.base(cfg), name=options.name, listener=listener)
    lines = [json.dumps(found.to_json(), indent=2)] if options.json else describe_dry_run(found)
    emit("".join(f"{line}\n" for line in lines))


def start_run(options: TrainOptions, listener: Listener) -> Outcome:
    """Train a new run; with --continue, continue the named run if it exists, as it is if only its name is given."""
    from gptlite.cli.train.configs import Configs
    from gptlite.runs.run import Run, runs_folder

    name = options.name
    only_named = options.config is None and not options.sets and not options.data and options.minutes is None
    if options.continue_ and name is not None and only_named and Run(runs_folder() / name).started:
        return resume_run(name, options, listener)
    with located_text(options.data):
        configs = Configs.of(options)
        if options.continue_ and name is not None:
            return continue_or_start(name, configs, listener)
        configs = configs.timed()
        cfg = configs.load()
        announce(configs, cfg, listener)
        from gptlite.training.launch import start

        return start(cfg, base=configs.base(cfg), name=name, listener=listener, facts=configs.facts)


def continue_or_start(name: str, configs: Configs, listener: Listener) -> Outcome:
    """Continue the named run, or start it."""
    from gptlite.runs.run import Run, runs_folder
    from gptlite.training.launch import resume_or_start

    run = Run(runs_folder(configs.asked().run.dir) / name)
    configs = configs if run.started else configs.timed()
    cfg = configs.load_like(run) if run.started else configs.load()
    announce(configs, cfg, listener)
    return resume_or_start(cfg, name=name, listener=listener, facts=configs.facts)


def announce(configs: Configs, cfg: RunConfig, listener: Listener) -> None:
    """Say where the config comes from, and what --minutes chose."""
    from gptlite.cli.train.configs import LENGTH
    from gptlite.planning.choose_sizes import describe_sizes

    if configs.path is not None:
        listener.say(f"config: {configs.path}")
    if configs.speed is not None:
        listener.say(f"speed: about {configs.speed.value} GFLOP/s ({configs.speed.reason})")
    if configs.minutes is not None:
        listener.say(f"for {configs.minutes:g} min: {describe_sizes(cfg)}")
        if cfg.train.max_minutes is not None and cfg.train.max_minutes < configs.minutes:
            listener.say(
                f"training ends after {cfg.train.max_minutes:g} min, because after that it would only learn so short a "
                f"text by heart. Give more text, or --set {LENGTH}={configs.minutes:g} to train on."
            )


def resume_run(name: str, options: TrainOptions, listener: Listener) -> Outcome:
    """Continue an existing run, with the changes that --set asks for."""
    from gptlite.config.loading import load_config
    from gptlite.runs.run import CONFIG, Run, runs_folder
    from gptlite.training.launch import resume

    with located(f"--resume {name}", at=f"run {name}"):
        run = Run.open(runs_folder(), name, unfinished=True)
    listener.say(f"run: {run.path}")
    cfg = load_config(run.path / CONFIG, options.sets) if options.sets else None
    return resume(run, cfg, listener=listener)


def summarize(outcome: Outcome) -> list[str]:
    """The result of a run: where it is saved, its best scores, what its curve says, and the next commands."""
    from gptlite.planning.epochs import TextUse
    from gptlite.planning.verdict import compare, judge
    from gptlite.runs.summary import read_curve, read_run
    from gptlite.training.reconcile import saved_config

    run, state, cfg = outcome.run, outcome.state, saved_config(outcome.run)
    manifest = outcome.prepared.manifest
    sees_ahead = cfg.model.sees_ahead
    text = TextUse.of(manifest.train.tokens, state.tokens, block_size=cfg.model.block_size, order=cfg.data.order)
    trained = f"{counted(state.step, 'update')} in {state.elapsed:.0f} s"
    lines = ["", f"{run.name}: {trained}, trained on {counted(state.tokens, 'token')}: {text}; saved in {run.path}"]
    if state.best_loss is not None and state.best_bits_per_byte is not None:
        lines.append(
            f"best at step {state.best_step}: {state.best_bits_per_byte:.3f} bits per byte, loss {state.best_loss:.4f}"
        )
        if sees_ahead:
            lines.append(
                "this model has no mask: it reads the tokens that it is scored on, so these are no predictions"
            )
        elif manifest.compressors_meaningful:
            compressors = {"xz -9": manifest.baselines.xz, "gzip -9": manifest.baselines.gzip}
            lines.append(compare(state.best_bits_per_byte, compressors))
    lines += judge(read_curve(read_run(run)[0]))
    handle = shlex.quote(run.handle)
    sample = [] if sees_ahead else [f'sample {handle} --prompt "..."']
    return lines + next_commands([*sample, f"eval {handle}"], run.path.parent)


def show_samples(outcome: Outcome) -> list[str]:
    """Return what the model wrote before training, and a longer sample of what the best checkpoint writes."""
    from gptlite.inference.load import load
    from gptlite.runs.summary import read_run, read_samples

    samples = read_samples(outcome.run)
    summary = read_run(outcome.run)[0]
    if not samples or summary.sees_ahead:
        return []
    prompt = str(summary.config["eval.prompt"])
    text = load(outcome.run.path).generate(prompt, max_new_tokens=SAMPLED_TOKENS)[:SAMPLED_CHARACTERS]
    return ["", "before training:", *indented(samples[0][1]), "now:", *indented(text)]


def indented(text: str) -> list[str]:
    """The lines of a text, two columns to the right."""
    return [f"  {line}" for line in text.splitlines()]
