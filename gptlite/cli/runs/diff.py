"""`gptlite runs diff`: the configs and samples of two runs next to each other."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean

from gptlite.cli.runs.table import row_cells
from gptlite.cli.tables import format_table
from gptlite.cli.terminal import NO_MASK, on_one_line, shell_name
from gptlite.config.yaml import write
from gptlite.formatting import counted
from gptlite.runs.compare import SEED, MeanDifference, RunGroup, differences, find_seed_group
from gptlite.runs.run import CONFIG
from gptlite.runs.summary import Summary, read_samples


def describe_differences(a: Summary, b: Summary, others: Sequence[Summary]) -> Iterator[str]:
    """Yield pieces of text for the terminal. others: the runs in the same folders, to find other seeds of the two."""
    names = [on_one_line(run.name if a.name != b.name else str(run.run.path.absolute())) for run in (a, b)]
    keys, cells = differences(a.config, b.config), [row_cells(RunGroup([run])) for run in (a, b)]
    figures = [header for header in cells[0] if header != "run"]
    columns = {"": [*figures, "", *keys]}
    for run, name, row in zip((a, b), names, cells, strict=True):
        values = [write(run.config[key]) if key in run.config else "-" for key in keys]
        columns[name] = [*(row[header] for header in figures), "", *values]
    yield format_table(columns) if keys else f"{format_table(columns)}config: the same\n"
    same_sources = not any(key.startswith(("data.", "tokenizer.")) for key in keys)
    if same_sources and None not in (a.text, b.text) and a.text != b.text:
        yield "text: not the same. It was changed between the two runs.\n"
    for run, name in zip((a, b), names, strict=True):
        if run.sees_ahead:
            yield f"{name} {NO_MASK}\n"
    yield from _compare_with_seeds(a, b, names, others)
    for run, name in zip((a, b), names, strict=True):
        for step, text in read_samples(run.run)[-1:]:
            yield f"\n{name}, sample at step {step}\n"
            yield from (f"  {on_one_line(line)}\n" for line in text.split("\n"))


def _compare_with_seeds(a: Summary, b: Summary, names: Sequence[str], others: Sequence[Summary]) -> Iterator[str]:
    """Yield which run's setting has the better mean over its seeds, or why that cannot be told.

    Nothing where only one of the scores is a prediction, or where a finished run has no score.
    """
    if a.sees_ahead != b.sees_ahead:
        return
    groups = [find_seed_group(run, others) for run in (a, b)]
    scores = [group.scores for group in groups]
    seeds = " and ".join(f"{counted(len(own), 'seed')} of {name}" for own, name in zip(scores, names, strict=True))
    states = dict(zip(names, (a.state, b.state), strict=True))
    unfinished = [f"{name} is not finished ({state})" for name, state in states.items() if state != "finished"]
    if _names_of_texts(a) != _names_of_texts(b):
        command = f"eval {' '.join(shlex.quote(run.run.handle) for run in (a, b))} --file FILE"
        said = (
            "cannot tell which is better: they were scored on different texts. Score them on one:\n"
            f"  {shell_name('gptlite')} {on_one_line(command)}"
        )
    elif unfinished:
        said = f"cannot tell which is better: {' and '.join(unfinished)}"
    elif groups[0] == groups[1]:
        said = "both are seeds of one setting: their scores differ by chance only"
    elif all(len(own) > 1 for own in scores):
        said = _judge(scores, names, seeds)
    elif all(scores):
        said = (
            f"cannot tell which is better from {seeds}: seeds differ, too. "
            f"Train more with --config RUN/{CONFIG} --sweep {SEED}=1,2,3"
        )
    else:
        return
    yield f"\n{said}\n"


def _names_of_texts(run: Summary) -> list[str]:
    """Return the sources of a run without their folders: a project may have been moved."""
    given = [run.config.get(f"data.{key}") for key in ("source", "val_source")]
    return [Path(str(spec)).name for specs in given for spec in (specs if isinstance(specs, list) else [specs])]


def _judge(scores: Sequence[Sequence[float]], names: Sequence[str], seeds: str) -> str:
    """Return which mean of best bits per byte is lower, if the 95 % interval of the difference does not hold zero."""
    (name, better), (_, worse) = sorted(zip(names, scores, strict=True), key=lambda pair: mean(pair[1]))
    difference = MeanDifference.of(worse, better)
    low, high = difference.interval
    if low > 0:
        return (
            f"{name} is better: its mean best bits per byte is lower by {difference.value:.4f} (95 % interval "
            f"{low:.4f} to {high:.4f}; {seeds})"
        )
    return (
        f"cannot tell which is better: the mean best bits per byte differ by {difference.value:.4f}, and the 95 % "
        f"interval of the difference, {low:.4f} to {high:.4f}, holds zero ({seeds})"
    )
