"""`gptlite train`: train a model, or go on with one."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gptlite.cli.options import ConfigOption, DataOption, SetOption, located_text, read_config
from gptlite.cli.terminal import Console, emit
from gptlite.compute.processes import is_main
from gptlite.errors import ConfigError, located

if TYPE_CHECKING:
    from gptlite.training.launch import Outcome
    from gptlite.training.listener import Listener

NameOption = Annotated[
    str | None,
    typer.Option("--name", metavar="NAME", help="The run's name. Default: the config's, or that and a number."),
]
ResumeOption = Annotated[
    str | None,
    typer.Option("--resume", metavar="RUN", help="Go on with this run; `latest` is the newest unfinished one."),
]
DryRunOption = Annotated[
    bool,
    typer.Option("--dry-run", help="Say what the run would take: parameters, memory, disk, epochs, time. Make none."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="With --dry-run: as one JSON object.")]
ContinueOption = Annotated[
    bool,
    typer.Option("--continue", help="With --name or --sweep: go on with that run or sweep, or start it."),
]
SweepOption = Annotated[
    list[str] | None,
    typer.Option(
        "--sweep",
        metavar="SECTION.KEY=A,B,...",
        help="Train a run for each value of a key. Repeated: for each combination. A table at the end.",
    ),
]
JobsOption = Annotated[
    int | None,
    typer.Option(
        "--jobs", metavar="N", help="With --sweep: so many runs at a time, which share the cores. Default: 1."
    ),
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="No bar and no lines of progress.")]


def train(
    config: ConfigOption = None,
    set_: SetOption = None,
    data: DataOption = None,
    name: NameOption = None,
    resume: ResumeOption = None,
    continue_: ContinueOption = False,
    quiet: QuietOption = False,
    dry_run: DryRunOption = False,
    json_: JsonOption = False,
    sweep: SweepOption = None,
    jobs: JobsOption = None,
) -> None:
    """Train a model on the text of a config. Ctrl-C stops after the current update, with a checkpoint."""
    if sweep or jobs is not None:
        from gptlite.cli.sweep.command import SweepOptions, sweep_runs

        asked = SweepOptions(sweep or (), config, set_ or (), data or (), name, jobs, quiet)
        sweep_runs(asked, go_on=continue_, resume=resume, dry_run=dry_run, as_json=json_)
        return
    check_combination(config, data, name, resume, continue_)
    check_dry_run(dry_run, resume, continue_, quiet, json_)
    from gptlite.training.listener import SilentListener

    terminal = Console(quiet=quiet) if is_main() else SilentListener()
    if dry_run:
        print_plan(config, set_, data, name, terminal, as_json=json_)
        return
    if resume is not None:
        outcome = resume_run(resume, set_ or [], terminal)
    else:
        outcome = start_run(config, set_, data, name, continue_, terminal)
    if is_main():
        for line in card(outcome):
            emit(f"{line}\n")


def check_combination(
    config: str | None, data: list[str] | None, name: str | None, resume: str | None, continue_: bool
) -> None:
    """ConfigError for options that would contradict each other or do nothing."""
    problems = [
        f"{option} = {value}: not with --resume, which goes on with a run as it was started; leave one of them out"
        for option, value in (("--config", config), ("--data", " ".join(data or ()) or None), ("--name", name))
        if resume is not None and value is not None
    ]
    if continue_ and name is None:
        problems.append("--continue = without --name: the run to go on with or start; add --name NAME")
    if problems:
        raise ConfigError(problems)


def check_dry_run(dry_run: bool, resume: str | None, continue_: bool, quiet: bool, json_: bool) -> None:
    """ConfigError for options that mean nothing beside --dry-run, or without it."""
    problems = []
    if dry_run and (resume is not None or continue_):
        option = "--continue" if resume is None else f"--resume {resume}"
        problems.append(f"--dry-run = with {option}: a plan is made of new runs; leave one of them out")
    if dry_run and quiet:
        problems.append("--quiet = with --dry-run: nothing is trained, and no bar is shown; leave one of them out")
    if json_ and not dry_run:
        problems.append("--json = without --dry-run: the form of its answer; add --dry-run or leave it out")
    if problems:
        raise ConfigError(problems)


def print_plan(
    config: str | None,
    sets: list[str] | None,
    data: list[str] | None,
    name: str | None,
    terminal: Listener,
    *,
    as_json: bool,
) -> None:
    """What the run would do and need; the lines about the way there go to the terminal."""
    from gptlite.cli.train.dry_run_report import card_of_plan
    from gptlite.training.launch import dry_run

    cfg, path = read_config(config, sets, data)
    terminal.say(f"config: {path}")
    with located_text(data):
        planned = dry_run(cfg, base=path.stem, name=name, listener=terminal)
    lines = [json.dumps(planned.to_json(), indent=2)] if as_json else card_of_plan(planned)
    for line in lines:
        emit(f"{line}\n")


def start_run(
    config: str | None,
    sets: list[str] | None,
    data: list[str] | None,
    name: str | None,
    continue_: bool,
    terminal: Listener,
) -> Outcome:
    """A new run, or with --continue whichever it takes; with nothing but a name, an existing run goes on as it is."""
    from gptlite.runs.run import Run, runs_folder

    only_a_name = config is None and not sets and not data
    if continue_ and name is not None and only_a_name and Run(runs_folder() / name).started:
        return resume_run(name, [], terminal)
    cfg, path = read_config(config, sets, data)
    terminal.say(f"config: {path}")
    from gptlite.training.launch import claim, start

    with located_text(data):
        if continue_ and name is not None:
            return claim(cfg, name=name, listener=terminal)
        return start(cfg, base=path.stem, name=name, listener=terminal)


def resume_run(wanted: str, sets: list[str], terminal: Listener) -> Outcome:
    """An existing run goes on."""
    from gptlite.config.loading import load_config
    from gptlite.runs.run import CONFIG, Run, runs_folder
    from gptlite.training.launch import resume

    run = Run.open(runs_folder(), wanted, unfinished=True)
    terminal.say(f"run: {run.path}")
    with located("--set"):
        cfg = load_config(run.path / CONFIG, sets) if sets else None
    return resume(run, cfg, listener=terminal)


def card(outcome: Outcome) -> list[str]:
    """The end of a run: where it lies, its best figures, what to type next."""
    run, state = outcome.run, outcome.state
    manifest = outcome.prepared.manifest
    lines = [
        "",
        f"{run.name}: {state.step} updates, {state.tokens:,} tokens, {state.elapsed:.0f} s; it lies in {run.path}",
    ]
    if state.best_loss is not None and state.best_bits_per_byte is not None:
        lines.append(
            f"best after {state.best_step}: {state.best_bits_per_byte:.3f} bits per byte, loss {state.best_loss:.4f}"
        )
    if manifest.compressors_meaningful:
        lines.append(f"the same text by xz -9: {manifest.baselines.xz:.3f}, by gzip -9: {manifest.baselines.gzip:.3f}")
    return [
        *lines,
        "next:",
        f'  {program("gptlite")} sample {shlex.quote(run.handle)} --prompt "..."',
        f"  {program('gptlite')} eval {shlex.quote(run.handle)}",
        f"  {program('tensorboard')} --logdir {shlex.quote(str(run.path.parent))}",
    ]


def program(name: str) -> str:
    """How the calling shell reaches a program of this environment: by name where PATH has it, else by its path."""
    beside_python = Path(sys.executable).parent / name
    return shlex.quote(str(beside_python)) if shutil.which(name) is None and beside_python.exists() else name
