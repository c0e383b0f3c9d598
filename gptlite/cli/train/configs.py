"""The config that a command line asks for: a file, or sizes chosen for the text and the time, and changes to it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gptlite.cli.options import build_overrides, find_config_file
from gptlite.compute.choice import Choice
from gptlite.config.loading import Override, load_config, parse_config
from gptlite.config.schema import RunConfig
from gptlite.config.yaml import Value
from gptlite.errors import located
from gptlite.planning.choose_sizes import CHOSEN, SPEED_VARIABLE, check_text, choose_sizes, fit_to
from gptlite.runs.run import CONFIG, Run

if TYPE_CHECKING:
    from gptlite.cli.train.options import TrainOptions

SPEED, MINUTES, CHOSEN_MINUTES = "speed_class", "minutes", "chosen_minutes"  # in run.json
LENGTH = "train.max_minutes"
DEFAULT_MINUTES = 3.0  # for a text of the user's own, where nothing else is said


@dataclass(frozen=True)
class Configs:
    """Loads what a command line asks for, as often as a sweep needs it.

    path: None where sizes are chosen for the text and no file is given. minutes: of --minutes. speed: where sizes are
    chosen, the GFLOP/s that they are chosen for; None before it is known.
    """

    path: Path | None
    overrides: Sequence[str | Override]
    minutes: float | None
    speed: Choice | None = None

    @classmethod
    def of(cls, options: TrainOptions) -> Configs:
        """What the options ask for. Sizes are chosen with --minutes, and for a text without --config."""
        overrides = build_overrides(options.sets, options.data)
        chooses = options.minutes is not None or "data.source" in options.keys_set
        path = None if chooses and options.config is None else find_config_file(options.config)
        return cls(path, overrides, options.minutes)

    @property
    def chooses(self) -> bool:
        """Whether sizes are chosen for the text."""
        return self.path is None or self.minutes is not None

    def asked(self, more: Sequence[str | Override] = ()) -> RunConfig:
        """The config without what is chosen. Raises ConfigError with every problem."""
        with located("--set"):
            return load_config(self.path, self.changes(self.minutes, more))

    def changes(self, minutes: Value, more: Sequence[str | Override] = ()) -> list[str | Override]:
        """All overrides. minutes: to train, instead of what the file says; None: as it says."""
        length = [] if minutes is None else [Override("--minutes", LENGTH, minutes)]
        return [*length, *self.overrides, *more]

    def minutes_for(self, asked: RunConfig) -> float:
        """The minutes that sizes are chosen for."""
        return self.minutes or asked.train.max_minutes or DEFAULT_MINUTES

    def load(self, more: Sequence[str | Override] = ()) -> RunConfig:
        """Load the config with further overrides. Raises ConfigError with every problem."""
        asked = self.asked(more)
        if self.speed is None:
            return asked
        minutes, given = self.minutes_for(asked), asked.given()
        with self.naming_option(minutes):
            sizes = choose_sizes(
                *(count_bytes(asked), minutes, self.speed.value),
                max_steps=asked.train.max_steps,
                epochs=asked.train.epochs,
            )
        if self.minutes is None:
            return load_config(self.path, self.changes(None, more), fit_to(sizes, given))
        del given[LENGTH]
        return load_config(self.path, self.changes(sizes[LENGTH], more), fit_to(sizes, given))

    def load_like(self, run: Run) -> RunConfig:
        """Load the config to continue a run with: sizes that were chosen stay as they were."""
        if not self.chooses:
            return load_config(self.path, self.overrides)
        saved = parse_config(run.config_text(), str(run.path / CONFIG)).given()
        sizes = {key: saved[key] for key in CHOSEN if key in saved}
        length = sizes.pop(LENGTH)
        if self.minutes is None:
            given, lengths = self.asked().given(), ("train.max_steps", "train.epochs", LENGTH)
            if not any(key in given for key in lengths):
                sizes |= {key: saved.get(key) for key in lengths}
            return load_config(self.path, self.overrides, fit_to(sizes, given))
        same = run.info.get(MINUTES) == self.minutes  # then it may have been chosen to end earlier
        return load_config(self.path, self.changes(length if same else self.minutes), sizes)

    def naming_option(self, minutes: float) -> AbstractContextManager[None]:
        """Let errors of the choice name the option that asks for it."""
        return located("--data" if self.minutes is None else f"--minutes {minutes:g}")

    def timed(self, existing: Sequence[Run] = ()) -> Configs:
        """The same for the speed of this machine, or that for which existing runs were started, if sizes are chosen."""
        if not self.chooses:
            return self
        asked = self.asked()
        with self.naming_option(self.minutes_for(asked)):
            check_text(count_bytes(asked))  # before torch is loaded
        from gptlite.training.speed import find_speed

        known = next((found for run in existing if (found := recorded_speed(run)) is not None), None)
        return dataclasses.replace(self, speed=known or find_speed(asked.run))

    def facts(self, cfg: RunConfig) -> Mapping[str, Any]:
        """What run.json records of the choice that led to a config."""
        if self.speed is None:
            return {}
        asked, chosen = self.asked(), cfg.train.max_minutes
        clock = {} if chosen is None else {MINUTES: self.minutes_for(asked), CHOSEN_MINUTES: chosen}
        return {SPEED: self.speed.value, **clock}

    @property
    def environment(self) -> Mapping[str, str]:
        """The variable by which other processes choose for the same speed."""
        return {} if self.speed is None else {SPEED_VARIABLE: str(self.speed.value)}

    def base(self, cfg: RunConfig) -> str:
        """Return the name of a run without --name: as its config or, without one, as its text."""
        if self.path is not None:
            return self.path.stem
        from gptlite.data.preparing.fingerprint import clean_name, open_sources, plain_name

        return clean_name(plain_name(open_sources(cfg.data)[0])) or "minutes"


def count_bytes(cfg: RunConfig) -> int:
    """The bytes of the text, without that of data.val_source."""
    from gptlite.data.preparing.fingerprint import open_sources

    return sum(each.count_bytes() for each in open_sources(cfg.data) if not each.is_for_validation)


def recorded_speed(run: Run) -> Choice | None:
    """The speed that the sizes of a run were chosen for."""
    found = run.info.get(SPEED) if run.started else None
    return Choice(found, f"as for {run.name}") if isinstance(found, int) else None
