"""Compare runs: groups that differ only in their seed, their means, config keys that differ."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gptlite.config.yaml import Value
from gptlite.formatting import abbreviated
from gptlite.runs.summary import Summary

SEED = "run.seed"
SAME_AMOUNT = 1.05  # times as many tokens
FOLDERS = ("run.dir", "data.dir")  # they do not affect training


@dataclass(frozen=True)
class RunGroup:
    """Runs that differ only in their seed, or a single run. Figures are means over the group."""

    runs: Sequence[Summary]

    @property
    def first(self) -> Summary:
        """The run that was asked for, or started first. Its config is that of the group, except for the seed."""
        return self.runs[0]

    def mean(self, figure: Callable[[Summary], float | None]) -> float | None:
        """Return the mean of a figure; None where a run does not have it."""
        values = [figure(run) for run in self.runs]
        known = [value for value in values if value is not None]
        if len(known) < len(values):
            return None
        return known[0] if len(set(known)) == 1 else statistics.fmean(known)

    @property
    def best(self) -> float | None:
        """Mean of the best bits per byte."""
        return self.mean(lambda run: run.best_bits_per_byte)

    @property
    def scores(self) -> dict[int, float]:
        """The best bits per byte by seed, of the runs that have any."""
        scored = [(run.config.get(SEED), run.best_bits_per_byte) for run in self.runs]
        return {seed: score for seed, score in scored if isinstance(seed, int) and score is not None}

    @property
    def deviation(self) -> float | None:
        """Sample standard deviation (n - 1) of the best bits per byte; None for a single run."""
        return statistics.stdev(self.scores.values()) if len(self.scores) == len(self.runs) > 1 else None

    def value(self, key: str) -> Value:
        """Return the group's value of a config key; None for the seed of several runs."""
        return None if key == SEED and len(self.runs) > 1 else self.first.config.get(key)


def group_seeds(runs: Sequence[Summary]) -> list[RunGroup]:
    """Group finished runs that differ only in their seed, in the order of their first runs.

    Unfinished runs stay alone, since their means would not be comparable. So does the second run of the same seed.
    """
    groups: dict[object, list[Summary]] = defaultdict(list)
    for run in runs:
        key = _config_without_seed(run) if run.state == "finished" else run.run.path
        seeds = [other.config.get(SEED) for other in groups[key]]
        groups[run.run.path if run.config.get(SEED) in seeds else key].append(run)
    return [RunGroup(each) for each in groups.values()]


def find_seed_group(run: Summary, others: Sequence[Summary]) -> RunGroup:
    """Return `run` and after it finished runs of its setting, one of each other seed; an unfinished one is alone."""
    return group_seeds([run, *(other for other in others if other.run.path != run.run.path)])[0]


def spreads_of_similar(run: Summary, others: Sequence[Summary], factor: float) -> list[float]:
    """Return the standard deviation of the seeds of other settings, as a part of their mean score.

    Of those whose models have about as many parameters as that of `run`, up to a factor.
    """
    size = run.parameters or 0
    groups = [each for each in group_seeds(others) if size / factor <= (each.first.parameters or 0) <= size * factor]
    return [each.deviation / each.best for each in groups if each.deviation is not None and each.best]


def is_same_setting(a: Summary, b: Summary) -> bool:
    """Return whether two runs differ at most in their seed."""
    return _config_without_seed(a) == _config_without_seed(b)


def find_settings_by(key: str, run: Summary, others: Sequence[Summary]) -> list[RunGroup]:
    """Return the groups of finished runs that have the setting of `run`, but for one key and what follows from it."""
    setting = _config_without_seed(run, key)
    same = [each for each in others if each.state == "finished" and _config_without_seed(each, key) == setting]
    return group_seeds(same)


def find_differing_keys(groups: Sequence[RunGroup]) -> list[str]:
    """Return the config keys whose values are not the same in all groups, in the order of the config.

    Without those that rules chose in every group, if they follow from others that differ.
    """
    keys = dict.fromkeys(key for group in groups for key in group.first.config if key not in FOLDERS)
    differing = [key for key in keys if len({repr(group.value(key)) for group in groups if _has(group, key)}) > 1]
    given = [key for key in differing if not all(key in group.first.chosen for group in groups if _has(group, key))]
    return given or differing


def uncommon_values(groups: Sequence[RunGroup]) -> list[dict[str, Value]]:
    """Return, for each group, the differing keys and values that at most half of the groups share."""
    keys = find_differing_keys(groups)
    most = {key: Counter(repr(group.value(key)) for group in groups).most_common(1)[0] for key in keys}
    usual = {key: value for key, (value, times) in most.items() if 2 * times > len(groups)}
    return [
        {key: group.value(key) for key in keys if _has(group, key) and repr(group.value(key)) != usual.get(key)}
        for group in groups
    ]


def names_of_texts(run: Summary) -> list[str]:
    """Return the sources of a run without their folders: a project may have been moved."""
    given = [run.config.get(f"data.{key}") for key in ("source", "val_source")]
    return [Path(str(spec)).name for specs in given for spec in (specs if isinstance(specs, list) else [specs])]


def warn_of_differences(rows: Sequence[RunGroup]) -> str:
    """Say that the scores of rows are of different texts, or the finished ones trained on different amounts, or ""."""
    scored = [row.first for row in rows if row.best is not None]
    texts = {tuple(names_of_texts(run)) for run in scored}
    if len(texts) > 1:
        return (
            f"these scores are of {len(texts)} different texts and cannot be compared. To score runs on one text: "
            "gptlite eval RUN RUN --file FILE"
        )
    amounts = [run.tokens for run in scored if run.state == "finished" and run.tokens]
    if amounts and max(amounts) > SAME_AMOUNT * min(amounts):
        least, most = abbreviated(min(amounts)), abbreviated(max(amounts))
        return f"these runs were trained on different amounts of text, {least} to {most} tokens"
    return ""


def _config_without_seed(run: Summary, varied: str | None = None) -> object:
    """Return what runs of one setting share. varied: a key that may differ, with what rules choose by it."""
    left_out = {SEED, *FOLDERS} if varied is None else {SEED, *FOLDERS, varied, *run.chosen}
    values = [(key, repr(value)) for key, value in sorted(run.config.items()) if key not in left_out]
    return (run.text if varied is None or not varied.startswith("tokenizer.") else None, *values)


def _has(group: RunGroup, key: str) -> bool:
    return key in group.first.config and not (key == SEED and len(group.runs) > 1)
