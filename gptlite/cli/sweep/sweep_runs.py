"""The runs of a sweep. What can be refused is refused before the first one starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gptlite.compute.threads import available_threads
from gptlite.config.grid import Point, names_of
from gptlite.config.schema import RunConfig
from gptlite.data.preparing.prepare import prepare
from gptlite.errors import DataError, Diverged, Problem, RunError, gathered
from gptlite.formatting import Say, and_more
from gptlite.planning.epochs import with_max_steps
from gptlite.runs.find_text import find_text, with_tokenizer
from gptlite.runs.run import Run, runs_folder
from gptlite.training.launch import as_recorded, check_text
from gptlite.training.reconcile import reconcile, saved_config

STOPPED = (129, 130, 143)  # exit codes of runs that a signal stopped


@dataclass(frozen=True)
class SweepRun(Run):
    """A run of a sweep, which may exist already, with its point of the grid and its config."""

    point: Point
    cfg: RunConfig

    def changes(self) -> bool:
        """Whether the existing run is to train longer or otherwise than before. Raises ConfigError if it may not."""
        saved, wanted = saved_config(self), as_recorded(self.cfg, self)
        if wanted.train.epochs is not None and (text := find_text(self, saved)) is not None:
            wanted = with_max_steps(wanted, text.manifest.train.tokens)
        return reconcile(saved, wanted, self.name) != saved

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to train. A run that diverged would diverge again, at the same update."""
        return (self.finished or self.diverged) and not self.changes()


def sweep_runs(grid: Sequence[Point], configs: Sequence[RunConfig]) -> list[SweepRun]:
    """The runs of a grid, all in one folder."""
    root = runs_folder(configs[0].run.dir)
    return [SweepRun(root / point.name, point, cfg) for point, cfg in zip(grid, configs, strict=True)]


def check_runs(sweep: str, runs: Sequence[SweepRun], *, continue_: bool) -> None:
    """Raise RunError if runs of this sweep exist and may not be continued, or belong to another grid."""
    existing = [run for run in Run.all(runs[0].path.parent) if names_of(sweep).fullmatch(run.name)]
    if existing and not continue_:
        raise RunError(
            f"a sweep of this name exists: its run {existing[0].name}. Add --continue to continue it, or choose "
            "another name.",
            where=f"--name {sweep}",
        )
    found: dict[str, list[str]] = {}  # names of the runs that share a problem
    in_grid = {each.name for each in runs}
    if others := [run.name for run in existing if run.name not in in_grid]:
        advice = "Give the keys and values of that sweep in the same order, or choose another --name."
        found[f"this run is not in the grid. {advice}"] = others
    for each in runs:
        own: list[Problem] = []
        if each.started:
            with gathered(own):
                each.changes()
        for problem in own:
            found.setdefault(problem.sentence, []).append(each.name)
    if found:
        raise RunError([Problem(sentence, f"run {and_more(names, 1)}") for sentence, names in found.items()])


def prepare_texts(runs: Sequence[SweepRun], say: Say) -> None:
    """Prepare every text that a new run needs, once for all that share it. Raises DataError with every problem."""
    problems: list[Problem] = []
    for same_text in _by_text(runs):
        cfg = same_text[0].cfg
        started = [each for each in same_text if each.started]
        with gathered(problems):
            check_text(started, cfg)
        if len(started) == len(same_text):
            continue
        with gathered(problems):
            prepared = prepare(cfg.data, with_tokenizer(cfg, say).tokenizer, say)
            for block_size in sorted({each.cfg.model.block_size for each in same_text if each not in started}):
                with gathered(problems):
                    prepared.check_block_size(block_size)
    if problems:
        raise DataError(list(dict.fromkeys(problems)))


def check_same_text(run: SweepRun, runs: Sequence[SweepRun]) -> None:
    """Raise RunError if the text of a new run is no longer the one that started runs of the sweep have read."""
    same_text = next(group for group in _by_text(runs) if run in group)
    check_text([other for other in same_text if other.started], run.cfg)


def _by_text(runs: Sequence[SweepRun]) -> list[list[SweepRun]]:
    """The runs grouped by the token ids that they train on."""
    groups: dict[str, list[SweepRun]] = {}
    for run in runs:
        groups.setdefault(f"{run.cfg.data!r}{run.cfg.tokenizer!r}", []).append(run)
    return list(groups.values())


def threads_per_run(jobs: int, n_runs: int) -> int:
    """The threads of each run if those of the machine are divided among the runs that train at a time."""
    threads: int = available_threads().value
    return max(1, threads // min(jobs, n_runs))


def exit_code(runs: Sequence[SweepRun], codes: Mapping[str, int]) -> int:
    """The exit code of the first run of the grid that diverged or failed; 0 if all finished."""
    diverged = {each.name: Diverged.exit_code for each in runs if each.diverged}
    failed = diverged | {name: code for name, code in codes.items() if code}
    return next((failed[each.name] for each in runs if each.name in failed), 0)
