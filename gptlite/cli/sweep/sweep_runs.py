"""The runs of a sweep. What can be refused is refused before the first one starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gptlite.config.grid import Point, load_points, names_of
from gptlite.config.schema import RunConfig
from gptlite.data.preparing.prepare import prepare
from gptlite.errors import ConfigError, DataError, Problem, RunError, gathered
from gptlite.formatting import Say, and_more
from gptlite.planning.epochs import with_max_steps
from gptlite.runs.find_text import find_text, with_tokenizer
from gptlite.runs.run import Run, runs_folder
from gptlite.training.launch import as_recorded, check_text
from gptlite.training.reconcile import reconcile, saved_config

if TYPE_CHECKING:
    from gptlite.cli.train.configs import Configs

STOPPED = (129, 130, 143)  # exit codes of runs that a signal stopped


@dataclass(frozen=True)
class SweepRun(Run):
    """A run of a sweep, which may exist already, with its point of the grid and its config."""

    point: Point
    cfg: RunConfig

    def changes(self) -> bool:
        """Return whether the existing run is to train longer or otherwise. Raises ConfigError if it may not."""
        saved, wanted = saved_config(self), as_recorded(self.cfg, self)
        if wanted.train.epochs is not None and (text := find_text(self, saved)) is not None:
            wanted = with_max_steps(wanted, text.manifest.train.tokens)
        return reconcile(saved, wanted, self.name) != saved

    @property
    def is_done(self) -> bool:
        """Return whether nothing is left to train. A run that diverged would diverge again, at the same update."""
        return (self.finished or self.diverged) and not self.changes()

    @property
    def text_keys(self) -> str:
        """Return all keys that decide the token ids, in one string."""
        return f"{self.cfg.data!r}{self.cfg.tokenizer!r}"


def sweep_runs(grid: Sequence[Point], configs: Sequence[RunConfig]) -> list[SweepRun]:
    """Return the runs of a grid, all in one folder."""
    root = runs_folder(configs[0].run.dir)
    return [SweepRun(root / point.name, point, cfg) for point, cfg in zip(grid, configs, strict=True)]


def check_runs(sweep: str, runs: Sequence[SweepRun], *, continue_: bool) -> None:
    """Raise RunError if runs of this sweep exist and may not be continued, or belong to another grid."""
    existing = [run.name for run in Run.all(runs[0].path.parent) if names_of(sweep).fullmatch(run.name)]
    if existing and not continue_:
        sentence = f"a sweep of this name exists: its run {existing[0]}. Add --continue to continue it, or choose "
        raise RunError(f"{sentence}another name.", where=f"--name {sweep}")
    names: dict[str, list[str]] = {}  # of the runs that share a problem
    if others := [name for name in existing if name not in {run.name for run in runs}]:
        advice = "Give the keys and values of that sweep in the same order, or choose another --name."
        names[f"this run is not in the grid. {advice}"] = others
    for run in runs:
        own: list[Problem] = []
        with gathered(own):
            _ = run.started and run.changes()
        for problem in own:
            names.setdefault(problem.sentence, []).append(run.name)
    if names:
        raise RunError([Problem(sentence, f"run {and_more(shared, 1)}") for sentence, shared in names.items()])


def prepare_texts(runs: Sequence[SweepRun], say: Say) -> None:
    """Prepare every text that a new run needs, once for all that share it. Raises DataError with every problem."""
    problems: list[Problem] = []
    by_text = {run.text_keys: run.cfg for run in runs}
    for text_keys, cfg in by_text.items():
        same_text = [run for run in runs if run.text_keys == text_keys]
        with gathered(problems):
            check_text([run for run in same_text if run.started], cfg)
            sizes = [run.cfg.model.block_size for run in same_text if not run.started]
            if sizes:
                prepared = prepare(cfg.data, with_tokenizer(cfg, say).tokenizer, say)
                prepared.check_block_size(max(sizes))
    if problems:
        raise DataError(list(dict.fromkeys(problems)))


def check_unchanged(run: SweepRun, runs: Sequence[SweepRun], configs: Configs) -> None:
    """Raise UserError if the config or the text of a run is no longer the one that the sweep began with."""
    if load_points(configs.load, [run.point]) != [run.cfg]:
        raise ConfigError(
            "this config was changed while the sweep was running. Change it back and add --continue, or start "
            "another sweep under another --name.",
            where=str(configs.path or "--minutes"),
        )
    check_text([other for other in runs if other.started and other.text_keys == run.text_keys], run.cfg)
