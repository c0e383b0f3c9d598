"""The table of a sweep, the best run first, models without a mask last, and the next commands."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gptlite.cli.runs.table import STATE_STYLES, read_summaries, row_cells, short_value, sort_rows
from gptlite.cli.sweep.sweep_runs import STOPPED
from gptlite.cli.tables import format_table, terminal_width
from gptlite.cli.terminal import next_commands
from gptlite.config.saved import shortened
from gptlite.formatting import Say
from gptlite.runs.compare import SEED, RunGroup, group_seeds
from gptlite.runs.summary import Summary, read_curve

if TYPE_CHECKING:
    from gptlite.cli.sweep.sweep_runs import SweepRun
    from gptlite.config.grid import Point

FAILED = "failed"
NUMBERS = ("bits/byte", "at", "loss")
SHRINKABLE = {"run": 16}
DROPPED = ("loss", "at", "state")  # the order in which columns leave a narrow terminal


def report(runs: Sequence[SweepRun], codes: Mapping[str, int], say: Say) -> str:
    """The table and the next commands. Runs that differ only in their seed are one row.

    No figure depends on the clock, so a sweep that was killed and continued has the same table.

    codes: exit codes of the runs that were trained. say: called with a line for each damaged file.
    """
    groups = sort_rows(group_seeds(read_summaries([run for run in runs if run.started], say)), "best")
    points = {run.name: run.point for run in runs}
    rows = [_cells(group, points[group.first.name], codes) for group in groups]
    rows += [{"run": run.name, "state": FAILED, **_values(run.point)} for run in runs if not run.started]
    headers = ("run", "state", *_values(runs[0].point), *NUMBERS)
    columns = {header: [row.get(header, "") for row in rows] for header in headers}
    filled = {header: cells for header, cells in columns.items() if any(cells)}
    styles, width = {**STATE_STYLES, FAILED: STATE_STYLES["diverged"]}, terminal_width()
    table = format_table(filled, width, numbers=NUMBERS, shrinkable=SHRINKABLE, dropped=DROPPED, styles=styles)
    # One without a mask cannot write, and its score cannot be compared.
    ranked = [group.first for group in groups if group.first.state == "finished" and not group.first.sees_ahead]
    handles = [shlex.quote(run.run.handle) for run in ranked]
    if not handles:
        return table
    compare = [f"runs diff {handles[0]} {handles[1]}"] if len(handles) > 1 else []
    commands = next_commands([f'sample {handles[0]} --prompt "..."', *compare], runs[0].path.parent)
    return table + "".join(f"{line}\n" for line in commands)


def _cells(group: RunGroup, point: Point, codes: Mapping[str, int]) -> dict[str, str]:
    cells = row_cells(group)
    if cells["state"] == "stopped" and codes.get(group.first.name, 0) not in (0, *STOPPED):
        cells["state"] = FAILED
    loss = group.mean(best_loss)
    cells["loss"] = "" if loss is None else f"{loss:.4f}"
    return cells | _values(point, without_seed=len(group.runs) > 1)


def _values(point: Point, *, without_seed: bool = False) -> dict[str, str]:
    """The values of a point by the shortest names of their keys."""
    short = shortened(list(point.values))
    return {
        short[key]: "" if key == SEED and without_seed else short_value(value) for key, value in point.values.items()
    }


def best_loss(summary: Summary) -> float | None:
    """The validation loss at the best bits per byte."""
    return next((each.loss for each in read_curve(summary) if each.step == summary.best_step), None)
