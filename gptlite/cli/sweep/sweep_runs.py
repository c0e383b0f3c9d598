"""A sweep: every point of a grid as a run of its own. What can be refused is refused before the first one starts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gptlite.compute.threads import available_threads
from gptlite.config.grid import Point, names_of
from gptlite.config.loading import parse_config
from gptlite.config.schema import RunConfig
from gptlite.data.prepare import prepare
from gptlite.errors import DataError, Diverged, Problem, RunError, gathered
from gptlite.runs.run import CONFIG, Run, runs_folder
from gptlite.training.launch import check_text, reconcile, with_absolute_paths


@dataclass(frozen=True)
class SweepRun:
    """A point, its config as asked for, and its run, which may be there already."""

    point: Point
    cfg: RunConfig
    run: Run

    def changes(self) -> bool:
        """Whether the run, which has started, is asked for more than it was before. ConfigError for what may not be."""
        saved = parse_config(self.run.config_text(), str(self.run.path / CONFIG))
        return reconcile(saved, with_absolute_paths(self.cfg), self.run.name) != saved

    @property
    def is_done(self) -> bool:
        """Whether there is nothing left to train. A run that diverged would do so again, at the same update."""
        return (self.run.finished or self.run.diverged) and not self.changes()


def sweep_runs_of(grid: Sequence[Point], configs: Sequence[RunConfig]) -> list[SweepRun]:
    """The runs of a grid, all in one folder."""
    root = runs_folder(configs[0].run.dir)
    return [SweepRun(point, cfg, Run(root / point.name)) for point, cfg in zip(grid, configs, strict=True)]


def check_runs(sweep: str, tasks: Sequence[SweepRun], *, go_on: bool) -> None:
    """UserError where runs of this sweep are there and are not to go on, or were started for another one."""
    root = tasks[0].run.path.parent
    there = [run for run in Run.all(root) if names_of(sweep).fullmatch(run.name)]
    if there and not go_on:
        raise RunError(
            f"--name = {sweep}: already used, by {there[0].name}; add --continue to go on with that sweep, "
            "or give another --name"
        )
    names = {task.run.name for task in tasks}
    strangers = [run.name for run in there if run.name not in names]
    problems: list[Problem] = []
    if strangers:
        sentence = (
            f"{_and_more(strangers)}: no point of this grid; give the keys and values that the sweep was started with, "
            "in their order, or another --name"
        )
        problems.append(Problem(sentence, f"--name {sweep}"))
    found: dict[str, list[str]] = {}  # the runs of each problem that several may share
    for task in tasks:
        own: list[Problem] = []
        if task.run.started:
            with gathered(own):
                task.changes()
        for problem in own:
            found.setdefault(problem.sentence, []).append(task.run.name)
    problems += [Problem(sentence, f"run {_and_more(runs)}") for sentence, runs in found.items()]
    if problems:
        raise RunError(problems)


def _and_more(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def ready_texts(tasks: Sequence[SweepRun], say: Callable[[str], None]) -> None:
    """Prepare every text that a run to come needs, once for all that share it. UserError for texts that do not suit."""
    problems: list[Problem] = []
    for tasks_of_text in _by_text(tasks):
        cfg = tasks_of_text[0].cfg
        started = [task for task in tasks_of_text if task.run.started]
        with gathered(problems):
            check_text([task.run for task in started], cfg)
        if len(started) == len(tasks_of_text):
            continue
        with gathered(problems):
            prepared = prepare(cfg.data, cfg.tokenizer, say)
            for block_size in sorted({task.cfg.model.block_size for task in tasks_of_text if task not in started}):
                with gathered(problems):
                    prepared.check_block_size(block_size)
    if problems:
        raise DataError(list(dict.fromkeys(problems)))


def check_same_text(task: SweepRun, tasks: Sequence[SweepRun]) -> None:
    """RunError where the text of a run that is to start is no longer what others of the sweep have read."""
    others = next(group for group in _by_text(tasks) if task in group)
    check_text([other.run for other in others if other.run.started], task.cfg)


def _by_text(tasks: Sequence[SweepRun]) -> list[list[SweepRun]]:
    """Tasks that train on the same ids, together."""
    groups: dict[str, list[SweepRun]] = {}
    for task in tasks:
        groups.setdefault(f"{task.cfg.data!r}{task.cfg.tokenizer!r}", []).append(task)
    return list(groups.values())


def share_of_threads(jobs: int, n_tasks: int) -> int:
    """What each of the runs that train at the same time may take of the threads that one alone would."""
    threads: int = available_threads().value
    return max(1, threads // min(jobs, n_tasks))


def first_failure(tasks: Sequence[SweepRun], codes: dict[str, int]) -> int:
    """The exit code of the first run of the grid that did not come to its end; 0 where all did."""
    diverged = {task.run.name: Diverged.exit_code for task in tasks if task.run.diverged}
    failed = diverged | {name: code for name, code in codes.items() if code}
    return next((failed[task.run.name] for task in tasks if task.run.name in failed), 0)
