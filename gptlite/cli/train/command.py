"""`gptlite train`: start a run, continue one, or describe one (--dry-run)."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from typer import Option

from gptlite.cli.options import ConfigOption, DataOption, OfflineOption, SetOption, located_text
from gptlite.cli.terminal import Console, emit, pasteable
from gptlite.cli.train.options import TrainOptions
from gptlite.compute.processes import as_torchrun, is_main, world_size
from gptlite.errors import ConfigError, located
from gptlite.loggers.metrics import Listener

if TYPE_CHECKING:
    from gptlite.training.launch import Request

MinutesOption = Annotated[
    float | None,
    Option(
        metavar="M",
        help="Train for M minutes. Sizes that neither --config nor --set gives are chosen for the text, the time and "
        "the speed of this machine.",
    ),
]
InitOption = Annotated[
    str | None,
    Option(
        metavar="SOURCE",
        help="Begin with the weights and the tokenizer of a run or checkpoint, of a GPT-2 in Hugging Face's format, or "
        "of gpt2 (train.from, tokenizer.from).",
    ),
]
ClockOption = Annotated[
    str | None,
    Option(
        metavar="RUN",
        help="Repeat a run that the clock ended, bit for bit: its config, unless --config is given, and how much of "
        "the time had passed at each update.",
    ),
]
NprocOption = Annotated[
    int | None,
    Option(metavar="N", help="Train one run in N processes on this machine, each with its share of a batch.", min=1),
]
SweepOption = Annotated[
    list[str] | None,
    Option(
        metavar="SECTION.KEY=A,B,...",
        help="Train a run for each value of a key and print a table. Repeated: for each combination.",
    ),
]
SeedsOption = Annotated[
    int | None, Option(metavar="N", help="Train each run with the seeds 1 to N: --sweep run.seed=1,...,N.", min=1)
]
JobsOption = Annotated[
    int | None,
    Option(metavar="N", help="With --sweep or --seeds: train N runs at a time, sharing the cores. Default: 1.", min=1),
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
    verbose: Annotated[bool, Option("--verbose", help="Say more at the start: speed, device, learning rate.")] = False,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Show the parameters, memory, disk, epochs and time of a run without making it.")
    ] = False,
    json_: Annotated[
        bool, Option("--json", help="Print what happens as JSON, an object on each line; with --dry-run one object.")
    ] = False,
    sweep: SweepOption = None,
    seeds: SeedsOption = None,
    jobs: JobsOption = None,
    offline: OfflineOption = False,
    init: InitOption = None,
    clock: ClockOption = None,
    nproc: NprocOption = None,
) -> None:
    """Train a model on a text. Ctrl-C stops after the current update and saves a checkpoint."""
    grid = [*(sweep or ()), *([] if seeds is None else [f"run.seed={','.join(map(str, range(1, seeds + 1)))}"])]
    options = TrainOptions(
        *(config, set_ or (), data or (), name, resume, continue_, quiet),
        *(dry_run, json_, grid, jobs, minutes),
        *(offline, init, clock, verbose, nproc),
    )
    if options.sweep:
        from gptlite.cli.sweep import run_sweep

        run_sweep(options)
    else:
        train_run(options)


def train_run(options: TrainOptions) -> None:
    """Train one run, or with --dry-run say what it would do."""
    os.environ.update(as_torchrun(os.environ))
    if problems := options.problems():
        raise ConfigError(problems)
    as_json = options.json and not options.dry_run
    console = Console(quiet=options.quiet, verbose=options.verbose, as_json=as_json)
    listener = console if is_main() else Listener()  # of several processes the main one prints
    if world_size() > 1:
        from gptlite.compute.distributed import gather

        gather(None, Console().say)  # waits until all have come
    with located_text(options.data, options.init):
        request = make_request(options, listener if options.nproc is None else Listener())  # they say it themselves
        from gptlite.training.launch import check_new, open_session, prepare_new

        if options.dry_run:
            cfg, prepared, _ = prepare_new(request, listener)
            from gptlite.training.dry_run import time_run

            plan = time_run(cfg, prepared)
            lines = [json.dumps(plan.to_json(), indent=2)] if options.json else map(pasteable, plan.lines())
            emit("".join(f"{line}\n" for line in lines))
            return
        if options.nproc is not None:
            from gptlite.compute.launch import run_in_processes

            if request.run is None:  # so that they refuse nothing
                check_new(request, listener, options.nproc)
            run_in_processes(options.nproc, ["train", *options.arguments("--nproc")])
            return
        from gptlite.cli.train.result import result_fields, show_samples, summarize
        from gptlite.training.reconcile import flat

        with open_session(request, listener) as session:
            config = dict(flat(session.trainer.cfg))
            listener.event("start", {"run": session.run.name, "path": str(session.run.path), "config": config})
            outcome = session.train()
    if as_json:
        listener.event("end", result_fields(outcome))
    elif is_main():
        lines = [*([] if options.quiet else show_samples(outcome)), *summarize(outcome)]
        emit("".join(f"{line}\n" for line in lines))


def make_request(options: TrainOptions, listener: Listener) -> Request:
    """Return what the options ask for: a new run, one to resume, or with --continue whichever there is."""
    from gptlite.cli.train.configs import Configs
    from gptlite.runs.run import CONFIG, Run, runs_folder
    from gptlite.training.launch import Request

    name = options.name
    only_named = not (options.config or options.set_ or options.data or options.minutes or options.init)
    if options.resume is not None:
        with located(f"--resume {options.resume}", at=f"run {options.resume}"):
            run = Run.open(runs_folder(), options.resume, unfinished=True)
    elif options.continue_ and name is not None and only_named:
        run = Run(runs_folder() / name)  # which goes on as it is
    else:
        run = None
    if run is not None and run.started:
        listener.say(f"run: {run.path}")
        return Request(run=run, changes=options.set_)
    clock = None
    if options.clock is not None:
        with located(f"--clock {options.clock}", at=f"run {options.clock}"):
            clock = Run.open(runs_folder(), options.clock)
        options = replace(options, config=options.config or str(clock.path / CONFIG))
    configs = Configs.of(options)
    asked = configs.asked(say=listener.say)
    run = Run(runs_folder(asked.run.dir) / name) if options.continue_ and name is not None else None
    if run is not None and run.started:
        cfg = configs.with_sizes_of(run, asked)
    else:
        configs = configs.timed(asked)
        cfg = configs.with_sizes(asked)
    configs.announce(asked, cfg, listener)
    base = name or (configs.base(cfg) if clock is None else clock.name)
    continued = run if run is not None and run.started else None
    return Request(cfg, name, base, clock, continued, facts=configs.facts(asked, cfg))
