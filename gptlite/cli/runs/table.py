"""`gptlite runs list`: which runs, in which order, as a table, JSON or CSV."""

from __future__ import annotations

import csv
import difflib
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from gptlite.cli.tables import format_table
from gptlite.config.saved import shortened
from gptlite.config.yaml import Value, parse_scalar, write
from gptlite.errors import ConfigError
from gptlite.formatting import Say, abbreviated, clock_time, counted
from gptlite.runs.compare import RunGroup, find_differing_keys, uncommon_values
from gptlite.runs.run import Run
from gptlite.runs.summary import Summary, read_run

LONGEST_VALUE = 24  # characters of a config value

NUMBERS = ("step", "tokens", "params", "bits/byte", "at", "tok/s", "elapsed")
# Columns that a narrow terminal leaves out, in this order.
DROPPED = ("tokenizer", "elapsed", "tok/s", "params", "at", "tokens", "step", "state", "differs", "bits/byte")
SHRINKABLE = {"run": 16, "differs": 22}
STATE_STYLES = {"running": "cyan", "finished": "green", "stopped": "yellow", "diverged": "red"}

# The columns of --csv and the keys of --json.
FIGURES: Mapping[str, Callable[[RunGroup], Any]] = {
    "name": lambda row: row.first.name,
    "seeds": lambda row: len(row.runs),
    "state": lambda row: row.first.state,
    "step": lambda row: row.mean(lambda run: run.step),
    "max_steps": lambda row: row.first.steps,
    "tokens": lambda row: row.mean(lambda run: run.tokens),
    "parameters": lambda row: row.first.parameters,
    "tokenizer": lambda row: row.first.tokenizer,
    "best_bits_per_byte": lambda row: row.best,
    "best_bits_per_byte_std": lambda row: row.deviation,
    "best_step": lambda row: row.mean(lambda run: run.best_step),
    "tokens_per_second": lambda row: row.mean(lambda run: run.tokens_per_second),
    "elapsed": lambda row: row.mean(lambda run: run.elapsed),
    "started_at": lambda row: datetime.fromtimestamp(row.first.started_at, UTC).isoformat(),
}
SHORT_NAMES = {"best": "best_bits_per_byte", "speed": "tokens_per_second", "started": "started_at"}
SORT_NAMES = ("name", "state", "step", "tokens", "parameters", "best", "speed", "elapsed")


def read_summaries(runs: Iterable[Run], say: Say) -> list[Summary]:
    """Read the summaries of runs. say: called with a line for each damaged file."""
    summaries = []
    for run in runs:
        summary, problems = read_run(run)
        summaries.append(summary)
        for problem in problems:
            say(problem)
    return summaries


def filter_runs(runs: Sequence[Summary], expressions: Sequence[str]) -> list[Summary]:
    """Return the runs that match every expression, KEY=VALUE or a part of the name. ConfigError for an unknown KEY."""
    tests = [_test(expression, runs) for expression in expressions]
    return [run for run in runs if all(test(run) for test in tests)]


def sort_rows(rows: Sequence[RunGroup], name: str | None) -> list[RunGroup]:
    """Sort by a figure or a config key, smallest first, rows without a value last. None keeps the order.

    By best bits per byte, models without a mask are last, too: their score is no prediction.
    """
    if name is None or not rows:
        return list(rows)
    name = SHORT_NAMES.get(name, name)
    if name == "best_bits_per_byte":
        return sorted(rows, key=lambda row: _sort_key(None if row.first.sees_ahead else row.best))
    figure = FIGURES.get(name)
    if figure is not None:
        return sorted(rows, key=lambda row: _sort_key(figure(row)))
    key = _config_key("--sort", name, [row.first for row in rows], SORT_NAMES)
    return sorted(rows, key=lambda row: _sort_key(row.value(key)))


def _test(expression: str, runs: Sequence[Summary]) -> Callable[[Summary], bool]:
    name, equals, text = (part.strip() for part in expression.partition("="))
    if not equals:
        return lambda run: name in run.name
    if name == "state":
        return lambda run: run.state == text
    key = _config_key("--filter", name, runs, ["state"])
    value = parse_scalar(text)
    return lambda run: key in run.config and (run.config[key] == value or run.config[key] == text)


def _config_key(option: str, name: str, runs: Sequence[Summary], others: Sequence[str]) -> str:
    """Return the config key with this name, with or without its section. ConfigError if there is none or several."""
    keys = dict.fromkeys(key for run in runs for key in run.config)
    meant = [key for key in keys if name in (key, key.rpartition(".")[2])]
    if len(meant) == 1:
        return meant[0]
    if meant:
        raise ConfigError(f"several keys are called {name}. Did you mean {' or '.join(meant)}?", where=option)
    from gptlite.config.suggest import suggest_key

    near = difflib.get_close_matches(name, others, n=1) or suggest_key(None, name)
    advice = f"Did you mean {' or '.join(near)}?" if near else "`gptlite runs --json` shows every key."
    raise ConfigError(f"{name} is neither a key of the config nor one of {', '.join(others)}. {advice}", where=option)


def _sort_key(value: Any) -> tuple[bool, bool, Any]:
    """Order numbers before texts, and None last."""
    is_number = isinstance(value, int | float)
    return value is None, not is_number, value if is_number else str(value)


def as_table(rows: Sequence[RunGroup], width: int | None) -> str:
    """Return a line per row that fits into `width` columns, or in full width for None."""
    short_keys = shortened(find_differing_keys(rows))
    columns: dict[str, list[str]] = {}
    for row, own in zip(rows, uncommon_values(rows), strict=True):
        differs = ", ".join(f"{short_keys[key]} {short_value(value)}" for key, value in own.items())
        for header, cell in {**row_cells(row), "differs": differs}.items():
            columns.setdefault(header, []).append(cell)
    filled = {header: cells for header, cells in columns.items() if any(cells)}
    return format_table(filled, width, numbers=NUMBERS, shrinkable=SHRINKABLE, dropped=DROPPED, styles=STATE_STYLES)


def row_cells(row: RunGroup) -> dict[str, str]:
    """Return the cells of a row by header."""

    def number(name: str, form: Callable[[float], str]) -> str:
        value = FIGURES[name](row)
        return "" if value is None else form(value)

    of_steps = "" if row.first.steps is None else f"/{row.first.steps}"
    seeds = f" ({counted(len(row.runs), 'seed')})" if len(row.runs) > 1 else ""
    deviation = "" if row.deviation is None else f" ±{row.deviation:.4f}"
    no_mask = " (no mask)" if row.first.sees_ahead else ""  # which is no prediction
    return {
        "run": row.first.name + seeds,
        "state": row.first.state,
        "step": number("step", lambda x: f"{x:.0f}{of_steps}"),
        "tokens": number("tokens", lambda x: abbreviated(round(x))),
        "params": number("parameters", lambda x: abbreviated(round(x))),
        "tokenizer": row.first.tokenizer,
        "bits/byte": number("best_bits_per_byte", lambda x: f"{x:.4f}{deviation}{no_mask}"),
        "at": number("best_step", lambda x: f"{x:.0f}"),
        "tok/s": number("tokens_per_second", lambda x: abbreviated(round(x))),
        "elapsed": number("elapsed", clock_time),
    }


def short_value(value: Value) -> str:
    """Return a config value in a few characters; of a path, its last part."""
    if isinstance(value, list):
        return " ".join(map(short_value, value))[:LONGEST_VALUE]
    text = value.rstrip("/").rpartition("/")[2] if isinstance(value, str) and "/" in value else write(value)
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + "…"


def as_json(rows: Sequence[RunGroup]) -> str:
    """Return {"runs": [{the keys of FIGURES, "runs": [names], "config": {"train.lr": ...}}]}.

    The figures of runs that differ only in their seed are means.
    """
    entries = []
    for row in rows:
        names = [run.name for run in row.runs]
        config = {key: row.value(key) for key in row.first.config}
        entries.append({**_figures(row), "runs": names, "config": config})
    return json.dumps({"runs": entries}, ensure_ascii=False) + "\n"


def as_csv(rows: Sequence[RunGroup]) -> str:
    """Return a header and a line per row: the keys of FIGURES, then the config keys that differ."""
    keys = find_differing_keys(rows)
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([*FIGURES, *keys])
    for row in rows:
        writer.writerow([*_figures(row).values(), *(row.value(key) for key in keys)])
    return file.getvalue()


def _figures(row: RunGroup) -> dict[str, Any]:
    return {name: figure(row) for name, figure in FIGURES.items()}
