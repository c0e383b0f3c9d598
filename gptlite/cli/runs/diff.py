"""`gptlite runs diff`: two runs side by side."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from gptlite.cli.runs.table import cells_of
from gptlite.cli.tables import fitted, one_line, side_by_side, table, terminal_width
from gptlite.config.yaml import write
from gptlite.formatting import duration
from gptlite.runs.compare import (
    Axis,
    RunGroup,
    curve_points,
    differences,
    find_seed_group,
    interpolate,
    shared_positions,
)
from gptlite.runs.summary import Summary, last_sample, read_curve

TITLES = ("", "config", "difference")  # of columns that no run has
N_PLACES = 5  # at which curves are compared
PAGE = 100  # columns where there is no terminal


def compared(a: Summary, b: Summary, others: Sequence[Summary]) -> Iterator[str]:
    """Pieces of text for people. others: the runs beside them, among which their other seeds are."""
    names = [one_line(run.name) for run in (a, b)]
    if len({*names, *TITLES}) < 2 + len(TITLES):
        names = [one_line(str(run.run.path.absolute())) for run in (a, b)]
    cells = [cells_of(RunGroup([run])) for run in (a, b)]
    info = [header for header in cells[0] if header != "run"]
    yield _pairs("", info, names, [[each[fact] for fact in info] for each in cells])
    yield "\n"
    keys = differences(a.config, b.config)
    if keys:
        values = [[write(run.config[key]) if key in run.config else "-" for key in keys] for run in (a, b)]
        yield _pairs("config", keys, names, values)
    else:
        yield "config: the same\n"
    if _text_changed(a, b):
        yield "text: not the same, under the same keys: it was changed between the two\n"
    yield from _curves(a, b, names)
    yield from _spread(a, b, names, others)
    yield from _samples(a, b, names)


def _text_changed(a: Summary, b: Summary) -> bool:
    """Whether two runs that name the same text were trained on different ids."""
    keys = [key for key in differences(a.config, b.config) if key.startswith(("data.", "tokenizer."))]
    return not keys and None not in (a.text, b.text) and a.text != b.text


def _pairs(title: str, keys: Sequence[str], names: Sequence[str], values: Sequence[Sequence[str]]) -> str:
    """A line for each key, with its value on both sides."""
    columns = {title: list(keys)}
    columns |= {name: list(map(one_line, cells)) for name, cells in zip(names, values, strict=True)}
    least = dict.fromkeys((*names, title), 12)
    return table(columns, fitted(columns, terminal_width(), least=least, dropped=()))


def _curves(a: Summary, b: Summary, names: Sequence[str]) -> Iterator[str]:
    curves = [read_curve(run) for run in (a, b)]
    axes: dict[str, Axis] = {"tokens": "tokens", "time": "seconds"}
    guessed = False
    for word, axis in axes.items():
        of_a, of_b = (curve_points(curve, axis) for curve in curves)
        places = shared_positions(of_a, of_b, N_PLACES)
        yield "\n"
        if not places:
            yield f"no evaluations at equal {word}\n"
            continue
        read = [(interpolate(of_a, x), interpolate(of_b, x)) for x in places]
        guessed = guessed or any(each.interpolated for pair in read for each in pair)
        columns = {f"at equal {word}": [_place(x, axis) for x in places]}
        for name, side in zip(names, zip(*read, strict=True), strict=True):
            columns[name] = [f"{'~' if each.interpolated else ''}{each.bits_per_byte:.4f}" for each in side]
        columns["difference"] = [f"{right.bits_per_byte - left.bits_per_byte:+.4f}" for left, right in read]
        least = dict.fromkeys(names, 12)
        widths = fitted(columns, terminal_width(), least=least, dropped=["difference"])
        yield table(columns, widths, numbers=list(columns))
    yield _wrapped(
        "bits per byte of the validation text" + "; ~ on the straight line between two evaluations" * guessed
    )


def _place(x: float, axis: Axis) -> str:
    if axis != "seconds":
        return f"{x:,.0f}"
    return f"{x:.1f} s" if x < 60 else duration(x)


def _spread(a: Summary, b: Summary, names: Sequence[str], others: Sequence[Summary]) -> Iterator[str]:
    """Say whether two runs differ by more than runs that differ only in their seed."""
    rows = [find_seed_group(run, others) for run in (a, b)]
    known = [
        (row.deviation, name, len(row.runs)) for row, name in zip(rows, names, strict=True) if row.deviation is not None
    ]
    if a.best_bits_per_byte is None or b.best_bits_per_byte is None or not known:
        return
    difference = abs(b.best_bits_per_byte - a.best_bits_per_byte)
    deviation, name, n = max(known)
    verdict = "not clearly different" if difference < deviation else "clearly different"
    figures = f"the best bits per byte differ by {difference:.4f}"
    yield "\n" + _wrapped(f"{verdict}: {figures}; the standard deviation over {n} seeds of {name} is {deviation:.4f}")


def _wrapped(words: str) -> str:
    return textwrap.fill(words, terminal_width() or PAGE) + "\n"


def _samples(a: Summary, b: Summary, names: Sequence[str]) -> Iterator[str]:
    samples = [last_sample(run.run) for run in (a, b)]
    if all(sample is None for sample in samples):
        return
    texts = {}
    for name, sample in zip(names, samples, strict=True):
        step, text = sample or (0, "")
        texts[f"{name} wrote at step {step}" if sample else f"{name} wrote nothing"] = text
    yield "\n"
    yield side_by_side(texts, terminal_width() or PAGE)
