"""Options of `gptlite train`, and which of them exclude or need each other."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from gptlite.cli.options import as_arguments
from gptlite.cli.terminal import shell_name
from gptlite.compute.processes import world_size
from gptlite.errors import Problem

# An option, others that it excludes, and what to do.
_EXCLUDES = (
    ("--resume", ("--sweep",), "a sweep is continued by its own command line with --continue."),
    (
        "--resume",
        ("--config", "--data", "--name", "--init"),
        "a resumed run keeps its config, text, name and weights. Leave these out.",
    ),
    ("--resume", ("--minutes",), "a resumed run keeps its length. Change it with --set train.max_minutes=M."),
    (
        "--clock",
        ("--minutes", "--data", "--init", "--sweep", "--resume", "--dry-run"),
        "--clock repeats a run exactly as it went. Leave out the other options, or --clock.",
    ),
    ("--json", ("--sweep",), "this prints the events of one run. For the results of a sweep, use gptlite runs --json."),
    ("--nproc", ("--sweep", "--dry-run"), "several processes train one run: no sweep, no --seeds and no dry run."),
    ("--dry-run", ("--sweep",), "a dry run describes one run. Give one of the values with --set."),
    ("--dry-run", ("--resume", "--continue"), "a dry run describes a new run. Leave one of the two out."),
)
# An option, others of which it needs one, and what to do.
_NEEDS = (
    ("--continue", ("--name", "--sweep"), "add --name with the run to continue or start."),
    ("--jobs", ("--sweep",), "this is how many runs of a sweep train at a time. Add --sweep."),
)


@dataclass(frozen=True)
class TrainOptions:
    """The options as given."""

    config: str | None = None
    sets: Sequence[str] = ()
    data: Sequence[str] = ()
    name: str | None = None
    resume: str | None = None
    continue_: bool = False
    quiet: bool = False
    dry_run: bool = False
    json: bool = False
    sweep: Sequence[str] = ()
    jobs: int | None = None
    minutes: float | None = None
    offline: bool = False
    init: str | None = None
    clock: str | None = None
    verbose: bool = False
    nproc: int | None = None

    def problems(self) -> list[Problem]:
        """Options that exclude each other, or would do nothing."""
        fields = {field.strip("_").replace("_", "-"): value for field, value in vars(self).items()}
        given = {f"--{field}" for field, value in fields.items() if value and value != [""]}
        found = [
            Problem(sentence, f"{option} with {' and '.join(clashing)}")
            for option, others, sentence in _EXCLUDES
            if option in given and (clashing := [other for other in others if other in given])
        ]
        found += [
            Problem(sentence, f"{option} without {' or '.join(needed)}")
            for option, needed, sentence in _NEEDS
            if option in given and not given & set(needed)
        ]
        if self.minutes is not None and not 0 < self.minutes < math.inf:
            found.append(Problem("this must be a number above 0.", f"--minutes {self.minutes:g}"))
        if self.jobs is not None and self.jobs < 1:
            found.append(Problem("this must be at least 1.", f"--jobs {self.jobs}"))
        if self.init is not None and "train.from" in self.keys_set:
            found.append(Problem("both name a model to begin with. Keep one of them.", "--init with --set train.from"))
        for option in ("--sweep", "--dry-run", "--nproc"):
            if world_size() > 1 and option in given:
                found.append(Problem(f"torchrun started {world_size()} processes. Run this without torchrun.", option))
        return found

    @property
    def of_every_run(self) -> list[str]:
        """The arguments that each run of a sweep gets too."""
        found = as_arguments("--config", [self.config]) + as_arguments("--set", self.sets)
        found += as_arguments("--data", self.data) + as_arguments("--minutes", [self.minutes])
        found += as_arguments("--init", [self.init])
        flags = {"--quiet": self.quiet, "--offline": self.offline, "--verbose": self.verbose}
        return found + [flag for flag, is_given in flags.items() if is_given]

    @property
    def of_each_process(self) -> list[str]:
        """The arguments of each process of --nproc."""
        found = as_arguments("--name", [self.name]) + as_arguments("--resume", [self.resume])
        found += as_arguments("--clock", [self.clock])
        flags = {"--continue": self.continue_, "--json": self.json}
        return self.of_every_run + found + [flag for flag, is_given in flags.items() if is_given]

    @property
    def to_continue_sweep(self) -> str:
        """The command line that continues a sweep."""
        own = as_arguments("--jobs", [self.jobs]) + as_arguments("--name", [self.name])
        arguments = [*self.of_every_run, *as_arguments("--sweep", self.sweep), *own]
        return f"{shell_name('gptlite')} train {shlex.join([*arguments, '--continue'])}"

    @property
    def keys_set(self) -> list[str]:
        """Keys that get one value for all runs of a sweep."""
        return [each.partition("=")[0].strip() for each in self.sets] + ["data.source"] * bool(self.data)
