"""`gptlite report`: what runs came to, in one HTML file to keep or to send."""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from gptlite.cli.options import open_runs
from gptlite.cli.terminal import Console, emit, output_path, write_output
from gptlite.formatting import counted

if TYPE_CHECKING:
    from gptlite.data.dataset.prepared import Prepared
    from gptlite.runs.compare import RunGroup
    from gptlite.runs.summary import Summary
    from gptlite.views.report import Curve, Setting

RunsArgument = Annotated[
    list[str] | None, Argument(metavar="[RUN]...", help="Names or folders of runs. Default: the newest.")
]


def report(
    runs: RunsArgument = None,
    out: Annotated[str | None, Option(metavar="FILE", help="The file. Default: RUN-report.html.")] = None,
) -> None:
    """Write figures, curves, samples and the verdict of runs into one HTML file. Other seeds of a run come with it."""
    emit(f"{write_report(runs or ['latest'], out, Console())}\n")


def write_report(runs: Sequence[str], out: str | None, console: Console) -> Path:
    """Write the report of runs, given by names or folders, and return its path."""
    from gptlite.cli.runs.diff import judge, name_pair, runs_in_folders_of, verdict_columns
    from gptlite.cli.runs.table import read_summaries, sort_rows
    from gptlite.runs.compare import find_seed_group, is_same_setting, names_of_texts
    from gptlite.runs.significance import MARGIN
    from gptlite.views.report import report_page

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
        verdict = list(judge(a, b, name_pair(a, b), others, MARGIN).lines())
    prepared = [find_prepared(row.first) for row in rows]
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


def find_prepared(summary: Summary) -> Prepared | None:
    """Return the text that a run was trained on, if it is still there."""
    from gptlite.runs.find import find_text
    from gptlite.training.reconcile import saved_config

    return find_text(summary.run, saved_config(summary.run))


def describe_text(summary: Summary, prepared: Prepared | None) -> str:
    """Say what was trained on."""
    from gptlite.runs.compare import names_of_texts

    names = ", ".join(name for name in names_of_texts(summary) if name != "None")
    if prepared is None:
        return f"trained on {names}, which is no longer there"
    train, val = prepared.manifest.train, prepared.manifest.val
    return f"trained on {train.bytes:,} bytes of {names}; {val.bytes:,} were kept aside to score"


def describe(row: RunGroup, prepared: Prepared | None, beside: Mapping[str, str]) -> Setting:
    """Return what the report says of the runs of one setting. beside: cells that compare it with the best."""
    from gptlite.cli.runs.table import row_cells
    from gptlite.runs.run import CONFIG
    from gptlite.runs.summary import read_samples
    from gptlite.views.report import Setting

    run, lines, figures = row.first, list[str](), {**row_cells(row), **beside}
    if prepared is not None:
        lines = list(say_result(run, prepared))
        found = prepared.manifest.baselines
        figures |= {name: f"{bits:.3f}" for name, bits in (("xz -9", found.xz), ("gzip -9", found.gzip)) if bits}
    handle, path = shlex.quote(run.run.handle), run.run.path / CONFIG
    if path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())
    by_clock = run.config.get("train.max_minutes") is not None and run.state == "finished"
    how = f"--clock {handle}" if by_clock else f"--config {shlex.quote(str(path))}"
    return Setting(
        name=run.name,
        figures=figures,
        curve=curve_of(row),
        lines=lines,
        samples=read_samples(run.run),
        command=f"gptlite train {how}",
        config=run.run.config_text(),
    )


def say_result(summary: Summary, prepared: Prepared) -> Iterator[str]:
    """Yield what the end of the run said about its score, and how much of its last samples is copied."""
    from gptlite.cli.train.result import SEARCHED, describe_result
    from gptlite.inference.memorization import find_copied
    from gptlite.runs.summary import read_samples

    yield from filter(None, describe_result(summary, prepared, summary.elapsed or 0.0)[0])
    samples = [text for _, text in read_samples(summary.run)[-4:]]
    if samples and not summary.sees_ahead and prepared.manifest.train.bytes <= SEARCHED:
        share = find_copied(samples, prepared).share
        yield f"{share:.0%} of its last {counted(len(samples), 'sample')} is copied from the training text"


def curve_of(row: RunGroup) -> Curve:
    """Return the mean curve of the seeds; of evaluations that all have, as by the clock each run has its own steps."""
    from gptlite.runs.summary import read_curve
    from gptlite.views.report import Curve

    curves = [[each for each in read_curve(run) if each.step > 0] for run in row.runs]
    per_step = (row.first.tokens or 0) / max(1, row.first.step)
    n = min(map(len, curves))
    at = [[curve[i] for curve in curves] for i in range(n)]
    scores = [[each.bits_per_byte for each in seeds] for seeds in at]
    return Curve(
        tokens=[round(statistics.mean(each.step for each in seeds) * per_step) for seeds in at],
        seconds=[statistics.mean(each.seconds or 0.0 for each in seeds) for seeds in at],
        mean=[statistics.mean(each) for each in scores],
        band=[(min(each), max(each)) for each in scores] if len(curves) > 1 else [],
    )
