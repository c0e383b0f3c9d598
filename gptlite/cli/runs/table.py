"""`gptlite runs list`: which runs, in which order, as a table or JSON; and `gptlite runs diff`: two compared."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from gptlite.cli.terminal import format_table
from gptlite.config.yaml import Value, parse_scalar, shortened, write
from gptlite.errors import ConfigError
from gptlite.formatting import Say, abbreviated, clock_time, counted
from gptlite.runs import compare
from gptlite.runs.compare import RunGroup
from gptlite.runs.find import source_name
from gptlite.runs.run import Run
from gptlite.runs.summary import Summary, read_run

LONGEST_VALUE = 24  # characters of a config value

NUMBERS = ("step", "tokens", "params", "bits/byte", "at", "PPMd", "tok/s", "elapsed", "difference", "95 %")
# Columns that a narrow terminal leaves out, in this order.
DROPPED = (
    *("tokenizer", "elapsed", "tok/s", "params", "at", "PPMd", "tokens", "step", "95 %", "difference", "state"),
    *("differs", "against the best", "bits/byte"),
)

# The keys of --json. Figures of runs that differ only in their seed are means.
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
    "ppmd": lambda row: row.first.ppmd,
    "tokens_per_second": lambda row: row.mean(lambda run: run.tokens_per_second),
    "elapsed": lambda row: row.mean(lambda run: run.elapsed),
    "started_at": lambda row: datetime.fromtimestamp(row.first.started_at, UTC).isoformat(),
}
# The columns of the table: a figure of each, and how it is written.
COLUMNS: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    "run": ("name", str),
    "state": ("state", str),
    "step": ("step", "{:.0f}".format),
    "tokens": ("tokens", lambda x: abbreviated(round(x))),
    "params": ("parameters", abbreviated),
    "tokenizer": ("tokenizer", str),
    "bits/byte": ("best_bits_per_byte", "{:.4f}".format),
    "at": ("best_step", "{:.0f}".format),
    "PPMd": ("ppmd", "{:.4f}".format),
    "tok/s": ("tokens_per_second", lambda x: abbreviated(round(x))),
    "elapsed": ("elapsed", clock_time),
}
SHORT_NAMES = {"best": "best_bits_per_byte", "speed": "tokens_per_second", "started": "started_at"}
SORT_NAMES = ("name", "state", "step", "tokens", "parameters", "best", "speed", "elapsed")


def read_summaries(runs: Iterable[Run], say: Say) -> list[Summary]:
    """Read the summaries of runs. say: called with a line for each damaged file."""
    read = [read_run(run) for run in runs]
    for problem in (problem for _, problems in read for problem in problems):
        say(problem)
    return [summary for summary, _ in read]


def filter_runs(runs: Sequence[Summary], expressions: Sequence[str]) -> list[Summary]:
    """Return the runs that match every expression, KEY=VALUE or a part of the name. ConfigError for an unknown KEY."""
    matching = list(runs)
    for expression in expressions:
        name, equals, text = (part.strip() for part in expression.partition("="))
        if not equals:
            matching = [run for run in matching if name in run.name]
        elif name == "state":
            matching = [run for run in matching if run.state == text]
        else:
            key, accepted = config_key("--filter", name, runs, ["state"]), (parse_scalar(text), text)
            matching = [run for run in matching if key in run.config and run.config[key] in accepted]
    return matching


def sort_rows(rows: Sequence[RunGroup], name: str | None) -> list[RunGroup]:
    """Sort by a figure or a config key, smallest first, rows without a value last. None keeps the order.

    By best bits per byte, models without a mask are last, too: their score is no prediction.
    """
    if name is None or not rows:
        return list(rows)
    name = SHORT_NAMES.get(name, name)
    key = "" if name in FIGURES else config_key("--sort", name, [row.first for row in rows], SORT_NAMES)

    def order(row: RunGroup) -> tuple[bool, bool, Any]:
        value = row.value(key) if key else FIGURES[name](row)
        if name == "best_bits_per_byte" and row.first.sees_ahead:
            value = None
        is_number = isinstance(value, int | float)
        return value is None, not is_number, value if is_number else str(value)

    return sorted(rows, key=order)


def config_key(option: str, name: str, runs: Sequence[Summary], others: Sequence[str]) -> str:
    """Return the config key with this name, with or without its section. ConfigError if there is none or several."""
    keys = dict.fromkeys(key for run in runs for key in run.config)
    meant = [key for key in keys if name in (key, key.rpartition(".")[2])]
    if len(meant) == 1:
        return meant[0]
    if meant:
        raise ConfigError(f"several keys are called {name}. Did you mean {' or '.join(meant)}?", where=option)
    from gptlite.config.keys import suggest_key

    near = difflib.get_close_matches(name, others, n=1) or suggest_key(None, name)
    advice = f"Did you mean {' or '.join(near)}?" if near else "`gptlite runs --json` shows every key."
    what = f"neither a key of the config nor one of {', '.join(others)}" if others else "no key of the config"
    raise ConfigError(f"{name} is {what}. {advice}", where=option)


def as_table(
    rows: Sequence[RunGroup],
    headers: Iterable[str] = tuple(COLUMNS),
    more: Mapping[str, list[str]] | None = None,
) -> str:
    """Return a line per row, without empty columns; the last says in what its config differs. more: further columns."""
    short_keys, cells = shortened(compare.find_differing_keys(rows)), list(map(row_cells, rows))
    columns = {header: [row[header] for row in cells] for header in headers}
    columns |= more or {}
    columns["differs"] = [
        ", ".join(f"{short_keys[key]} {short_value(value)}" for key, value in own.items())
        for own in compare.uncommon_values(rows)
    ]
    filled = {header: column for header, column in columns.items() if any(column)}
    return format_table(filled, numbers=NUMBERS, dropped=DROPPED)


def row_cells(row: RunGroup) -> dict[str, str]:
    """Return the cells of a row by header."""
    more = {
        "run": f" ({counted(len(row.runs), 'seed')})" if len(row.runs) > 1 else "",
        "step": "" if row.first.steps is None else f"/{row.first.steps}",
        "bits/byte": ("" if row.deviation is None else f" ±{row.deviation:.4f}")
        + (" (no mask)" if row.first.sees_ahead else ""),  # which is no prediction
    }
    values = {header: FIGURES[name](row) for header, (name, _) in COLUMNS.items()}
    return {
        header: "" if values[header] is None else form(values[header]) + more.get(header, "")
        for header, (_, form) in COLUMNS.items()
    }


def short_value(value: Value) -> str:
    """Return a config value in a few characters; of a path, its last part, and of a checkpoint its run."""
    if isinstance(value, list):
        return " ".join(map(short_value, value))[:LONGEST_VALUE]
    text = source_name(value) if isinstance(value, str) and "/" in value else write(value)
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + "…"


def as_json(rows: Sequence[RunGroup]) -> str:
    """Return {"runs": [{the keys of FIGURES, "runs": [names], "config": {"train.lr": ...}}]}."""
    entries = [
        {name: figure(row) for name, figure in FIGURES.items()}
        | {"runs": [run.name for run in row.runs], "config": {key: row.value(key) for key in row.first.config}}
        for row in rows
    ]
    return json.dumps({"runs": entries}, ensure_ascii=False) + "\n"
