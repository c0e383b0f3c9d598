"""Runs side by side: which differ only in their seed, in which keys the others differ, how their curves compare."""

from __future__ import annotations

import bisect
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from gptlite.config.yaml import Value
from gptlite.runs.summary import Evaluation, Summary

Axis = Literal["step", "tokens", "seconds"]

SEED = "run.seed"
PLACES = ("run.dir", "data.dir")  # where files lie changes nothing that is learned


@dataclass(frozen=True)
class RunGroup:
    """A run, or several that differ only in their seed: then figures are their means."""

    runs: Sequence[Summary]

    @property
    def first(self) -> Summary:
        """The one that started first; they have their config in common."""
        return self.runs[0]

    def mean(self, figure: Callable[[Summary], float | None]) -> float | None:
        """A figure of the runs; None where one of them does not have it."""
        values = [figure(run) for run in self.runs]
        known = [value for value in values if value is not None]
        if len(known) < len(values):
            return None
        return known[0] if len(set(known)) == 1 else statistics.fmean(known)

    @property
    def best(self) -> float | None:
        """Best bits per byte."""
        return self.mean(lambda run: run.best_bits_per_byte)

    @property
    def deviation(self) -> float | None:
        """The sample standard deviation (n - 1) of the best bits per byte; None for a single run."""
        values = [run.best_bits_per_byte for run in self.runs]
        known = [value for value in values if value is not None]
        return statistics.stdev(known) if len(known) == len(values) > 1 else None

    def value(self, key: str) -> Value:
        """What the runs have under a key of the config; None where it is not the same."""
        return None if key == SEED and len(self.runs) > 1 else self.first.config.get(key)


def fold(runs: Sequence[Summary]) -> list[RunGroup]:
    """Rows in the order of their first runs. Only finished runs are put together: a mean over halves would say nothing.

    Of two runs with the same seed, which repeat each other, the later has a row of its own.
    """
    rows: dict[object, list[Summary]] = defaultdict(list)
    for run in runs:
        key = _all_but_the_seed(run) if run.state == "finished" else run.run.path
        seeds = [other.config.get(SEED) for other in rows[key]]
        rows[run.run.path if run.config.get(SEED) in seeds else key].append(run)
    return [RunGroup(each) for each in rows.values()]


def seeds_of(run: Summary, others: Sequence[Summary]) -> RunGroup:
    """The finished runs that differ from a run only in the seed, itself among them if it is finished; else it alone."""
    rows = fold([other for other in others if _all_but_the_seed(other) == _all_but_the_seed(run)])
    return max(rows, key=lambda row: len(row.runs), default=RunGroup([run]))


def differing(rows: Sequence[RunGroup]) -> list[str]:
    """The keys whose values are not the same in all rows, in the order of the config."""
    keys = dict.fromkeys(key for row in rows for key in row.first.config if key not in PLACES)
    return [key for key in keys if len({repr(row.value(key)) for row in rows if _says(row, key)}) > 1]


def peculiar(rows: Sequence[RunGroup]) -> list[dict[str, Value]]:
    """Of each row, the differing keys and their values, without values that more than half of the rows have."""
    keys = differing(rows)
    most = {key: Counter(repr(row.value(key)) for row in rows).most_common(1)[0] for key in keys}
    usual = {key: value for key, (value, times) in most.items() if 2 * times > len(rows)}
    return [
        {key: row.value(key) for key in keys if _says(row, key) and repr(row.value(key)) != usual.get(key)}
        for row in rows
    ]


def differences(a: Mapping[str, Value], b: Mapping[str, Value]) -> list[str]:
    """The keys that two configs do not have in common with the same value."""
    return [key for key in dict.fromkeys([*a, *b]) if (key in a, repr(a.get(key))) != (key in b, repr(b.get(key)))]


def position(evaluation: Evaluation, axis: Axis) -> float | None:
    """Where on an axis an evaluation lies."""
    return {"step": evaluation.step, "tokens": evaluation.tokens, "seconds": evaluation.seconds}[axis]


def points(curve: Sequence[Evaluation], axis: Axis) -> list[tuple[float, float]]:
    """(position, bits per byte) of the evaluations that have a position, from left to right."""
    found = ((position(each, axis), each.bits_per_byte) for each in curve)
    return sorted((x, y) for x, y in found if x is not None)


@dataclass(frozen=True)
class CurveValue:
    """A curve at a place: on an evaluation, or on the straight line between the two around it."""

    bits_per_byte: float
    between: bool


def value_at(curve: Sequence[tuple[float, float]], x: float) -> CurveValue:
    """The curve at x, which lies within it."""
    right = bisect.bisect_left(curve, x, key=lambda point: point[0])
    x1, y1 = curve[right]
    if x1 == x:
        return CurveValue(y1, between=False)
    x0, y0 = curve[right - 1]
    return CurveValue(y0 + (y1 - y0) * (x - x0) / (x1 - x0), between=True)


def shared_places(a: Sequence[tuple[float, float]], b: Sequence[tuple[float, float]], most: int) -> list[float]:
    """Where to compare two curves: at most so many places that both of them reach, spread evenly over what they share.

    Places where both were evaluated, if there are enough of them; else places where one was. Both ends are among them.
    """
    if not a or not b:
        return []
    low, high = max(a[0][0], b[0][0]), min(a[-1][0], b[-1][0])
    of_a, of_b = ({x for x, _ in curve if low <= x <= high} for curve in (a, b))
    both = sorted(of_a & of_b)
    places = both if len(both) >= most else sorted(of_a | of_b)
    if len(places) <= most:
        return places
    return [places[round(i * (len(places) - 1) / (most - 1))] for i in range(most)]


def _all_but_the_seed(run: Summary) -> object:
    values = [(key, repr(value)) for key, value in sorted(run.config.items()) if key not in (SEED, *PLACES)]
    return (run.text, *values)


def _says(row: RunGroup, key: str) -> bool:
    return key in row.first.config and not (key == SEED and len(row.runs) > 1)
