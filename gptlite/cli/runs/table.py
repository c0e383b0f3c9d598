"""`gptlite runs`: the list as a table, as JSON, as CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from gptlite.config.saved import shortened
from gptlite.formatting import abbreviated, duration
from gptlite.runs.compare import RunGroup, find_differing_keys, uncommon_values

if TYPE_CHECKING:
    from gptlite.config.yaml import Value

LONGEST_VALUE = 24  # characters of a config's value

# In the order in which they stand, and in which they leave a narrow terminal, the first first.
NUMBERS = ("step", "tokens", "params", "bits/byte", "at", "tok/s", "elapsed")
DROPPED = ("tokenizer", "elapsed", "tok/s", "params", "at", "tokens", "step", "state", "differs", "bits/byte")
LEAST = {"run": 16, "differs": 22}  # columns that may be cut
STYLES = {"running": "cyan", "finished": "green", "stopped": "yellow", "diverged": "red"}

FIGURES: Mapping[str, Callable[[RunGroup], Any]] = {
    "name": lambda row: row.first.name,
    "n": lambda row: len(row.runs),
    "state": lambda row: row.first.state,
    "step": lambda row: row.mean(lambda run: run.step),
    "steps": lambda row: row.first.steps,
    "tokens": lambda row: row.mean(lambda run: run.tokens),
    "parameters": lambda row: row.first.parameters,
    "tokenizer": lambda row: row.first.tokenizer,
    "best_bits_per_byte": lambda row: row.best,
    "deviation": lambda row: row.deviation,
    "best_step": lambda row: row.mean(lambda run: run.best_step),
    "tokens_per_second": lambda row: row.mean(lambda run: run.tokens_per_second),
    "elapsed": lambda row: row.mean(lambda run: run.elapsed),
    "started_at": lambda row: datetime.fromtimestamp(row.first.started_at, UTC).isoformat(),
}


def as_table(rows: Sequence[RunGroup], width: int | None) -> str:
    """A line for each row; columns that find no place in `width` are left out, the least important first."""
    from gptlite.cli.tables import cut_in_the_middle, fitted, one_line, table

    words = shortened(find_differing_keys(rows))
    columns: dict[str, list[str]] = {}
    for row, own in zip(rows, uncommon_values(rows), strict=True):
        differs = ", ".join(f"{words[key]} {shown(value)}" for key, value in own.items())
        for header, cell in {**cells_of(row), "differs": differs}.items():
            columns.setdefault(header, []).append(one_line(cell))
    told = {header: cells for header, cells in columns.items() if any(cells)}
    widths = fitted(told, width, least=LEAST, dropped=DROPPED)
    told["run"] = [cut_in_the_middle(name, widths["run"]) for name in told["run"]]
    return table(told, widths, numbers=NUMBERS, styles=STYLES)


def cells_of(row: RunGroup) -> dict[str, str]:
    """What the table says of a row, by header."""

    def number(name: str, form: Callable[[float], str]) -> str:
        value = FIGURES[name](row)
        return "" if value is None else form(value)

    of_steps = "" if row.first.steps is None else f"/{row.first.steps}"
    seeds = f" ({len(row.runs)} seeds)" if len(row.runs) > 1 else ""
    deviation = "" if row.deviation is None else f" ±{row.deviation:.4f}"
    return {
        "run": row.first.name + seeds,
        "state": row.first.state,
        "step": number("step", lambda x: f"{x:.0f}{of_steps}"),
        "tokens": number("tokens", lambda x: abbreviated(round(x))),
        "params": number("parameters", lambda x: abbreviated(round(x))),
        "tokenizer": row.first.tokenizer,
        "bits/byte": number("best_bits_per_byte", lambda x: f"{x:.4f}{deviation}"),
        "at": number("best_step", lambda x: f"{x:.0f}"),
        "tok/s": number("tokens_per_second", lambda x: abbreviated(round(x))),
        "elapsed": number("elapsed", duration),
    }


def shown(value: Value) -> str:
    """A value of a config in a few characters: of a path its end."""
    from gptlite.config.yaml import write

    if isinstance(value, list):
        return " ".join(map(shown, value))[:LONGEST_VALUE]
    text = value.rstrip("/").rpartition("/")[2] if isinstance(value, str) and "/" in value else write(value)
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + "…"


def as_json(rows: Sequence[RunGroup]) -> str:
    """One object: {"runs": [{"name", "runs": [names], the figures of FIGURES, "config": {"train.lr": ...}}]}.

    Figures of several runs that differ only in their seed are means; `deviation` is that of best_bits_per_byte.
    """
    entries = []
    for row in rows:
        names = [run.name for run in row.runs]
        config = {key: row.value(key) for key in row.first.config}
        entries.append({**_figures(row), "runs": names, "config": config})
    return json.dumps({"runs": entries}, ensure_ascii=False) + "\n"


def as_csv(rows: Sequence[RunGroup]) -> str:
    """A header, and a line for each row: the figures of FIGURES, then the keys of the configs that differ."""
    keys = find_differing_keys(rows)
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([*FIGURES, *keys])
    for row in rows:
        writer.writerow([*_figures(row).values(), *(row.value(key) for key in keys)])
    return file.getvalue()


def _figures(row: RunGroup) -> dict[str, Any]:
    return {name: figure(row) for name, figure in FIGURES.items()}
