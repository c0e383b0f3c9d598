"""`gptlite report`: what runs came to, in one HTML file to keep or to send."""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from gptlite.cli.options import open_runs
from gptlite.cli.runs.diff import judge, runs_in_folders_of, verdict_columns
from gptlite.cli.runs.table import read_summaries, row_cells, sort_rows
from gptlite.cli.terminal import Console, on_one_line, output_path, write_output
from gptlite.cli.train.result import SEARCHED, describe_result
from gptlite.data.dataset.prepared import Prepared
from gptlite.formatting import counted
from gptlite.runs.compare import RunGroup, find_seed_group, is_same_setting, names_of_texts
from gptlite.runs.find import find_text
from gptlite.runs.run import CONFIG
from gptlite.runs.significance import MARGIN
from gptlite.runs.summary import Summary, read_curve, read_samples
from gptlite.training.reconcile import saved_config
from gptlite.views.line_plot import Line
from gptlite.views.report import Setting, report_page


def write_report(runs: Sequence[str], out: str | None, console: Console) -> Path:
    """Write the report of runs, given by names or folders, and return its path."""
    opened = open_runs(runs)
    path, summaries = output_path([run.name for run in opened], out, "report.html"), read_summaries(opened, console.say)
    others = runs_in_folders_of(summaries)
    groups: list[RunGroup] = []
    for run in summaries:
        if not any(is_same_setting(run, row.first) for row in groups):
            groups.append(find_seed_group(run, others))
    rows = sort_rows(groups, "best")
    verdict: list[str] = []
    if len(rows) == 2:
        a, b = (row.first for row in rows)
        verdict = list(judge(a, b, [on_one_line(row.first.run.handle) for row in rows], others, MARGIN).lines())
    prepared = [find_text(row.first.run, saved_config(row.first.run)) for row in rows]
    texts = list(dict.fromkeys(describe_text(row.first, text) for row, text in zip(rows, prepared, strict=True)))
    ppmd, columns, baseline = rows[0].first.ppmd, dict[str, list[str]](), None
    if len({tuple(names_of_texts(row.first)) for row in rows}) == 1:  # else no score can be compared
        columns = verdict_columns(rows, MARGIN)
        baseline = None if ppmd is None else (f"PPMd {ppmd:.3f}", ppmd)
    settings = [
        describe(row, prepared[i], {header: column[i] for header, column in columns.items()})
        for i, row in enumerate(rows)
    ]
    write_output(path, report_page(settings, "; ".join(texts), verdict, baseline))
    return path


def describe_text(summary: Summary, prepared: Prepared | None) -> str:
    """Say what was trained on. prepared: None where it is no longer there."""
    names = ", ".join(name for name in names_of_texts(summary) if name != "None")
    if prepared is None:
        return f"trained on {names}, which is no longer there"
    train, val = prepared.manifest.train, prepared.manifest.val
    return f"trained on {train.bytes:,} bytes of {names}; {val.bytes:,} were kept aside to score"


def describe(row: RunGroup, prepared: Prepared | None, beside: Mapping[str, str]) -> Setting:
    """Return what the report says of the runs of one setting. beside: cells that compare it with the best."""
    run, lines, figures = row.first, list[str](), {**row_cells(row), **beside}
    if prepared is not None:
        lines = list(say_result(run, prepared))
        found = prepared.manifest.baselines
        figures |= {name: f"{bits:.3f}" for name, bits in (("xz -9", found.xz), ("gzip -9", found.gzip)) if bits}
    handle, path = shlex.quote(run.run.handle), run.run.path / CONFIG
    by_clock = run.config.get("train.max_minutes") is not None and run.state == "finished"
    how = f"--clock {handle}" if by_clock else f"--config {shlex.quote(str(path))}"
    return Setting(
        name=run.name,
        figures=figures,
        curves=curves_of(row),
        lines=lines,
        samples=read_samples(run.run),
        command=f"gptlite train {how}",
        config=run.run.config_text(),
    )


def say_result(summary: Summary, prepared: Prepared) -> Iterator[str]:
    """Yield what the end of the run said about its score, and how much of its last samples is copied."""
    from gptlite.inference.memorization import find_copied  # imports torch

    yield from filter(None, describe_result(summary, prepared, summary.elapsed or 0.0)[0])
    samples = [text for _, text in read_samples(summary.run)[-4:]]
    if samples and not summary.sees_ahead and prepared.manifest.train.bytes <= SEARCHED:
        share = find_copied(prepared, samples)[0].share
        yield f"{share:.0%} of its last {counted(len(samples), 'sample')} is copied from the training text"


def curves_of(row: RunGroup) -> dict[str, Line]:
    """Return the mean curve of the seeds, and their range, over tokens and over seconds."""
    curves = [[each for each in read_curve(run) if each.step > 0] for run in row.runs]
    evaluations = list(zip(*curves, strict=False))  # those that all have: by the clock each run has its own steps
    scores = [[each.bits_per_byte for each in seeds] for seeds in evaluations]
    means = [statistics.mean(each) for each in scores]
    band = [(min(each), max(each)) for each in scores] if len(curves) > 1 else []
    per_step = (row.first.tokens or 0) / max(1, row.first.step)
    places = {
        "tokens trained on": [round(statistics.mean(each.step for each in seeds) * per_step) for seeds in evaluations],
        "seconds of training": [statistics.mean(each.seconds or 0.0 for each in seeds) for seeds in evaluations],
    }
    return {label: Line(row.first.name, means, xs, band) for label, xs in places.items() if xs and xs[0] > 0}
