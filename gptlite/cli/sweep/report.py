"""What came of a sweep: a table of its runs, the best first, and what to type next."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from gptlite.cli.runs.table import STATE_STYLES, row_cells, short_value, sort_rows
from gptlite.cli.sweep.workers import STOPPED
from gptlite.cli.tables import format_table, terminal_width
from gptlite.cli.train.command import program
from gptlite.config.saved import shortened
from gptlite.runs.compare import SEED, RunGroup, group_seeds
from gptlite.runs.summary import Summary, read_curve, read_run

if TYPE_CHECKING:
    from gptlite.cli.sweep.sweep_runs import SweepRun
    from gptlite.config.grid import Point

FAILED = "failed"
NUMBERS = ("bits/byte", "at", "loss")
SHRINKABLE = {"run": 16}
DROPPED = ("loss", "at", "state")  # by a narrow terminal, the first first


def report(tasks: Sequence[SweepRun], codes: Mapping[str, int], say: Callable[[str], None]) -> str:
    """The table, and below it what to type next.

    A line for each point, the best first; those that differ only in their seed are one. No figure depends on the
    clock, so that a sweep that was killed and continued has the same table.

    codes: exit codes of runs that were trained. say: told of damaged files.
    """
    rows = _rows(tasks, say)
    points = {task.run.name: task.point for task in tasks}
    lines = [_cells(row, points[row.first.name], codes) for row in rows]
    lines += [{"run": task.run.name, "state": FAILED, **_values(task.point)} for task in tasks if not task.run.started]
    return "".join([_table(lines, list(_values(tasks[0].point))), *(f"{line}\n" for line in _next(rows))])


def _table(lines: Sequence[Mapping[str, str]], keys: Sequence[str]) -> str:
    headers = ("run", "state", *keys, *NUMBERS)
    columns = {header: [line.get(header, "") for line in lines] for header in headers}
    filled = {header: cells for header, cells in columns.items() if any(cells)}
    styles = {**STATE_STYLES, FAILED: STATE_STYLES["diverged"]}
    return format_table(
        filled, terminal_width(), numbers=NUMBERS, shrinkable=SHRINKABLE, dropped=DROPPED, styles=styles
    )


def _rows(tasks: Sequence[SweepRun], say: Callable[[str], None]) -> list[RunGroup]:
    found = []
    for task in tasks:
        if task.run.started:
            summary, problems = read_run(task.run)
            found.append(summary)
            for problem in problems:
                say(problem)
    return sort_rows(group_seeds(found), "best")


def _cells(row: RunGroup, point: Point, codes: Mapping[str, int]) -> dict[str, str]:
    cells = row_cells(row)
    if cells["state"] == "stopped" and codes.get(row.first.name, 0) not in (0, *STOPPED):
        cells["state"] = FAILED
    loss = row.mean(best_loss)
    cells["loss"] = "" if loss is None else f"{loss:.4f}"
    return cells | _values(point, without_seed=len(row.runs) > 1)


def _values(point: Point, *, without_seed: bool = False) -> dict[str, str]:
    """The swept keys, as short as they can be, with the point's values."""
    short = shortened(list(point.values))
    return {
        short[key]: "" if key == SEED and without_seed else short_value(value) for key, value in point.values.items()
    }


def best_loss(summary: Summary) -> float | None:
    """The validation loss at the best bits per byte."""
    return next((each.loss for each in read_curve(summary) if each.step == summary.best_step), None)


def _next(rows: Sequence[RunGroup]) -> Iterator[str]:
    """What to type next, with the best runs."""
    handles = [shlex.quote(row.first.run.handle) for row in rows if row.first.state == "finished"]
    if not handles:
        return
    yield "next:"
    yield f'  {program("gptlite")} sample {handles[0]} --prompt "..."'
    if len(handles) > 1:
        yield f"  {program('gptlite')} runs diff {handles[0]} {handles[1]}"
    yield f"  {program('tensorboard')} --logdir {shlex.quote(str(rows[0].first.run.path.parent))}"
