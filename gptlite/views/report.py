"""The HTML report of runs: figures beside baselines, curves, samples, and the commands that repeat them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from gptlite.views.line_plot import Line, line_plot
from gptlite.views.page import page

ROWS = 8  # of samples


@dataclass(frozen=True)
class Setting:
    """Runs of one setting in a report."""

    name: str
    figures: Mapping[str, str]  # of the table, by header
    curves: Mapping[str, Line]  # bits per byte, by the label of the x axis
    lines: Sequence[str]  # what its score means
    samples: Sequence[tuple[int, str]]  # step, text
    command: str  # that trains it again
    config: str  # the text of the file


def report_page(
    settings: Sequence[Setting], about: str, verdict: Sequence[str], baseline: tuple[str, float] | None
) -> str:
    """Return the page. about: a line on the text. verdict: which setting is better. baseline: name, bits per byte."""
    names = " and ".join(setting.name for setting in settings)
    axes = dict.fromkeys(label for setting in settings for label in setting.curves)
    texts = {
        "heading": escape(names if len(settings) < 4 else f"{len(settings)} settings"),
        "verdict": "".join(f"<p>{escape(line)}</p>" for line in verdict),
        "figures": _figures(settings),
        "curves": "".join(_curves(settings, label, baseline) for label in axes),
        "samples": _samples(settings),
        "settings": "".join(map(_setting, settings)),
    }
    return page("report", "Report: " + escape(names), about, texts, {}, has_script=False)


def _figures(settings: Sequence[Setting]) -> str:
    headers = dict.fromkeys(header for setting in settings for header, value in setting.figures.items() if value)
    rows = [[setting.figures.get(header, "") for header in headers] for setting in settings]
    return _table(headers, [[f"<td>{escape(cell)}</td>" for cell in row] for row in rows])


def _curves(settings: Sequence[Setting], label: str, baseline: tuple[str, float] | None) -> str:
    lines = [setting.curves[label] for setting in settings if label in setting.curves]
    if baseline is not None:
        ends = [min(line.xs[0] for line in lines), max(line.xs[-1] for line in lines)]
        lines.append(Line(baseline[0], [baseline[1]] * 2, ends))
    return line_plot(lines, title=f"Bits per byte over {label}", x_label=label, y_label="bits per byte")


def _samples(settings: Sequence[Setting]) -> str:
    columns = [
        [f'<td>{step:,}</td><td class="text">{escape(text)}</td>' for step, text in _spread(setting.samples)]
        for setting in settings
    ]
    rows = itertools.zip_longest(*columns, fillvalue="<td></td><td></td>")
    return _table([header for setting in settings for header in ("step", setting.name)], rows)


def _spread(samples: Sequence[tuple[int, str]]) -> list[tuple[int, str]]:
    """Return at most ROWS of the samples, evenly spaced, the first and the last among them."""
    last = len(samples) - 1
    return [samples[i] for i in dict.fromkeys(round(last * row / (ROWS - 1)) for row in range(ROWS))] if samples else []


def _setting(setting: Setting) -> str:
    lines = "".join(f"<p>{escape(line)}</p>" for line in setting.lines)
    config = f"<details><summary>config.yaml</summary><pre>{escape(setting.config)}</pre></details>"
    return (
        f'<section class="panel"><h2>{escape(setting.name)}</h2>{lines}<p class="hint">To train it again:</p>'
        f"<pre>{escape(setting.command)}</pre>{config}</section>"
    )


def _table(headers: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = "".join(f"<th>{escape(header)}</th>" for header in headers)
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"
