"""Measured values: medians with their spread, limits that hold or are missed, tables."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Spread:
    """The median of several measurements, the least and the largest of them."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        values = list(values)
        return cls(statistics.median(values), min(values), max(values))

    @classmethod
    def of_ratios(cls, over: Sequence[float], under: Sequence[float]) -> Spread:
        """Of over / under, round by round: what slows a whole round down cancels."""
        return cls.of(a / b for a, b in zip(over, under, strict=True))


@dataclass(frozen=True)
class Figure:
    """A measured value, and the least or the most it may be; one without limits only informs."""

    name: str
    value: Spread
    unit: str
    at_least: float | None = None
    at_most: float | None = None

    @property
    def holds(self) -> bool:
        enough = self.at_least is None or self.value.median >= self.at_least
        return enough and (self.at_most is None or self.value.median <= self.at_most)

    def cells(self) -> list[str]:
        """A row for `table`."""
        value = self.value
        spread = "" if value.low == value.high else f"{value.low:.3f} to {value.high:.3f}"
        least = [] if self.at_least is None else [f"at least {self.at_least:.3f}"]
        most = [] if self.at_most is None else [f"at most {self.at_most:.3f}"]
        verdict = "" if not least + most else "holds" if self.holds else "MISSED"
        return [self.name, f"{value.median:.3f}", self.unit, spread, ", ".join(least + most), verdict]

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "holds": self.holds}


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows of equal length, in columns: the first to the left, what begins with a digit to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(
            cell.rjust(width) if i and cell[:1].isdigit() else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )
    return "\n".join(line.rstrip() for line in lines)
