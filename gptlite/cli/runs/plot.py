"""`gptlite runs plot`: validation curves as a picture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from gptlite.cli.eval.models import output_path
from gptlite.cli.files import write_output
from gptlite.errors import RunError
from gptlite.runs.compare import Axis, curve_points
from gptlite.runs.summary import Summary, read_curve
from gptlite.views.line_plot import LINEAR, Line, line_plot

LABELS = {"step": "updates", "tokens": "tokens trained on", "seconds": "seconds of training"}


def draw(runs: Sequence[Summary], axis: Axis, out: str | None) -> Path:
    """Write the picture; where it lies. RunError for a run that was never evaluated, ConfigError for a bad --out."""
    path = output_path([run.name for run in runs], out, "curves.svg")
    times = Counter(run.name for run in runs)
    lines, empty = [], []
    for run in runs:
        curve = curve_points(read_curve(run), axis)
        if not curve:
            empty.append(
                f"{run.run.path}: evaluations = none: one at least, to draw; train it further, or leave it out"
            )
            continue
        xs, ys = zip(*curve, strict=True)
        lines.append(Line(run.name if times[run.name] == 1 else str(run.run.path), ys, xs))
    if empty:
        raise RunError(empty)
    picture = line_plot(
        lines,
        title="Validation: bits per byte",
        x_label=LABELS[axis],
        y_label="bits per byte",
        x_axis=LINEAR,
    )
    write_output(path, picture)
    return path
