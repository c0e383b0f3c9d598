"""`gptlite train`: start a run, continue one, or describe one (--dry-run)."""

from __future__ import annotations

import json
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
from gptlite.cli.terminal import Console, emit
from gptlite.cli.train.options import TrainOptions
from gptlite.compute.processes import is_main, slurm_tasks, world_size
from gptlite.errors import ConfigError, located

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
    listener = wait_for_others(quiet=quiet)
    if dry_run:
        print_dry_run(options, listener)
        return
    outcome = start_run(options, listener) if resume is None else resume_run(resume, options, listener)
    if is_main():
        from gptlite.cli.train.result import print_result

        print_result(outcome, quiet=quiet)


def wait_for_others(*, quiet: bool) -> Listener:
    """Wait until all processes of the run have come, and return the listener of this one: only the main one prints."""
    from gptlite.training.listener import SilentListener

    listener = Console(quiet=quiet) if is_main() else SilentListener()
    if world_size() > 1:
        from gptlite.compute.rendezvous import gather

        gather("here", Console().say)
    elif slurm_tasks() > 1:
        listener.say(
            f"warning: Slurm started {slurm_tasks()} tasks, and each trains a run of its own. For one run, start "
            "one task on each machine, and torchrun in it."
        )
    return listener


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

        return start(cfg, base=configs.base(cfg), name=name, listener=listener, facts=configs.facts(cfg))


def continue_or_start(name: str, configs: Configs, listener: Listener) -> Outcome:
    """Continue the named run, or start it."""
    from gptlite.runs.run import Run, runs_folder
    from gptlite.training.launch import resume_or_start

    run = Run(runs_folder(configs.asked().run.dir) / name)
    configs = configs if run.started else configs.timed()
    cfg = configs.load_like(run) if run.started else configs.load()
    announce(configs, cfg, listener)
    return resume_or_start(cfg, name=name, listener=listener, facts=configs.facts(cfg))


def announce(configs: Configs, cfg: RunConfig, listener: Listener) -> None:
    """Say where the config comes from, and which sizes were chosen."""
    from gptlite.cli.train.configs import LENGTH
    from gptlite.planning.choose_sizes import describe_sizes

    if configs.path is not None:
        listener.say(f"config: {configs.path}")
    if configs.speed is None:
        return
    minutes, length = configs.minutes_for(configs.asked()), cfg.train.max_minutes
    if configs.minutes is None:
        instead = "--set train.max_steps=N or --set train.epochs=E counts instead"
        clock = "" if length is None else f"; a run by the clock does not repeat exactly, {instead}"
        listener.say(f"no --config: sizes are chosen for this text, as by --minutes {minutes:g}{clock}")
    listener.say(f"speed: about {configs.speed.value} GFLOP/s ({configs.speed.reason})")
    listener.say(f"for {minutes:g} min: {describe_sizes(cfg)}")
    if length is not None and length < minutes:
        listener.say(
            f"training ends after {length:g} min, because after that it would only learn so short a text by heart. "
            f"Give more text, or --set {LENGTH}={minutes:g} to train on."
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
