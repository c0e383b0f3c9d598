"""Which runs `gptlite runs` lists, and in which order: --filter and --sort."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from typing import Any

from gptlite.cli.runs.table import FIGURES
from gptlite.config.yaml import resolve
from gptlite.errors import ConfigError
from gptlite.runs.compare import RunGroup
from gptlite.runs.summary import Summary

SHORT_NAMES = {"best": "best_bits_per_byte", "speed": "tokens_per_second", "started": "started_at"}
SORTED_BY = ("name", "state", "step", "tokens", "parameters", "best", "speed", "elapsed")


def chosen(runs: Sequence[Summary], expressions: Sequence[str]) -> list[Summary]:
    """The runs that every expression holds for: KEY=VALUE, or a part of a name. ConfigError for an unknown KEY."""
    tests = [_test(expression, runs) for expression in expressions]
    return [run for run in runs if all(test(run) for test in tests)]


def ordered(rows: Sequence[RunGroup], word: str | None) -> list[RunGroup]:
    """Rows by a figure or a key of the config, the smallest first, those without it last. None: as they are."""
    if word is None or not rows:
        return list(rows)
    name = SHORT_NAMES.get(word, word)
    if name in FIGURES:
        return sorted(rows, key=lambda row: _rank(FIGURES[name](row)))
    key = _key("--sort", word, [row.first for row in rows], SORTED_BY)
    return sorted(rows, key=lambda row: _rank(row.value(key)))


def _test(expression: str, runs: Sequence[Summary]) -> Callable[[Summary], bool]:
    word, equals, text = (part.strip() for part in expression.partition("="))
    if not equals:
        return lambda run: word in run.name
    if word == "state":
        return lambda run: run.state == text
    key = _key("--filter", word, runs, ["state"])
    value = resolve(text)
    return lambda run: key in run.config and (run.config[key] == value or run.config[key] == text)


def _key(option: str, word: str, runs: Sequence[Summary], others: Sequence[str]) -> str:
    """The key of the config that a word names, with or without its section; ConfigError where there is none or two."""
    keys = dict.fromkeys(key for run in runs for key in run.config)
    meant = [key for key in keys if word in (key, key.rpartition(".")[2])]
    if len(meant) == 1:
        return meant[0]
    from gptlite.config.suggest import suggest_key

    near = meant or difflib.get_close_matches(word, others, n=1) or suggest_key(None, word)
    advice = f"did you mean {' or '.join(near)}?" if near else "gptlite runs --json shows every key"
    raise ConfigError(f"{option} = {word}: a key of the config, or {', '.join(others)}; {advice}")


def _rank(value: Any) -> tuple[bool, bool, Any]:
    """Numbers, then words, then nothing."""
    is_number = isinstance(value, int | float)
    return value is None, not is_number, value if is_number else str(value)
