"""Options of `gptlite train`, and which of them exclude or need each other."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from gptlite.cli.options import check_together
from gptlite.cli.terminal import shell_name
from gptlite.compute.processes import world_size
from gptlite.errors import Problem

# Others that an option excludes, and those of which it needs one.
EXCLUDES = {
    "--resume": ("--config", "--data", "--name", "--init", "--minutes"),  # a resumed run keeps them
    "--clock": ("--minutes", "--data", "--init", "--sweep", "--resume", "--dry-run"),  # it repeats a run as it went
    "--sweep": ("--resume", "--json", "--nproc", "--dry-run"),
    "--dry-run": ("--nproc", "--resume", "--continue"),  # it describes a new run
}
NEEDS = {"--continue": ("--name", "--sweep"), "--jobs": ("--sweep",)}


@dataclass(frozen=True)
class TrainOptions:
    """The options as given."""

    config: str | None = None
    set_: Sequence[str] = ()
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

    @property
    def given(self) -> dict[str, Any]:
        """The options that are given, by their names."""
        fields = {f"--{name.strip('_').replace('_', '-')}": value for name, value in vars(self).items()}
        return {option: value for option, value in fields.items() if value}

    def problems(self) -> list[Problem]:
        """Options that exclude each other, or would do nothing."""
        given = {option: option for option in self.given}
        found = check_together(given, EXCLUDES, NEEDS)
        if self.minutes is not None and not 0 < self.minutes < math.inf:
            found.append(Problem("this must be a number above 0.", f"--minutes {self.minutes:g}"))
        if self.init is not None and "train.from" in self.keys_set:
            found.append(Problem("both name a model to begin with. Keep one of them.", "--init with --set train.from"))
        for option in ("--sweep", "--dry-run", "--nproc"):
            if world_size() > 1 and option in given:
                found.append(Problem(f"torchrun started {world_size()} processes. Run this without torchrun.", option))
        return found

    def arguments(self, *without: str) -> list[str]:
        """Return the command line of these options, without some of them."""
        found = []
        for option, value in self.given.items():
            if option in without:
                continue
            values = value if isinstance(value, list | tuple) else [value]
            found += [option] if value is True else [word for each in values for word in (option, str(each))]
        return found

    @property
    def of_every_run(self) -> list[str]:
        """The arguments that each run of a sweep gets too."""
        return self.arguments("--name", "--sweep", "--jobs", "--continue")

    @property
    def to_continue_sweep(self) -> str:
        """The command line that continues a sweep."""
        return f"{shell_name('gptlite')} train {shlex.join(replace(self, continue_=True).arguments())}"

    @property
    def keys_set(self) -> list[str]:
        """Keys that get one value for all runs of a sweep."""
        return [each.partition("=")[0].strip() for each in self.set_] + ["data.source"] * bool(self.data)
