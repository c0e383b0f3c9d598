"""`gptlite runs diff`: two runs, or the values of a key, and which setting is better over its seeds."""

from __future__ import annotations

import json
import shlex
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gptlite.cli.runs.table import config_key, read_summaries, row_cells, short_value
from gptlite.cli.terminal import NO_MASK, Console, format_table, on_one_line, shell_name
from gptlite.config.yaml import write
from gptlite.errors import RunError
from gptlite.formatting import counted
from gptlite.runs import compare
from gptlite.runs.compare import SEED, RunGroup
from gptlite.runs.run import CONFIG, Run
from gptlite.runs.significance import LEVEL, Answer, Comparison, Difference
from gptlite.runs.summary import Summary, read_runs, read_samples

CODES: Mapping[Answer, int] = {"better": 0, "worse": 10, "same": 11, "unknown": 12}
WORDS: Mapping[Answer, str] = {"same": "no relevant difference", "unknown": "cannot tell"}  # others as they are
FEW = 3  # seeds that a setting should have at least
SIMILAR = 2.0  # times as many parameters at most have models of about the same size


@dataclass(frozen=True, repr=False)
class Verdict:
    """Which of two runs has the better setting."""

    answer: Answer
    sentence: str
    comparison: Comparison | None = None  # where their scores can be compared
    commands: Sequence[str] = ()  # that would tell
    over_blocks: Difference | None = None  # of the validation text

    def lines(self) -> Iterator[str]:
        """Yield lines for a terminal."""
        yield self.sentence
        yield from (f"  {shell_name('gptlite')} {on_one_line(command)}" for command in self.commands)
        if self.over_blocks is not None:
            low, high = self.over_blocks.interval()
            yield (
                f"another validation text of this kind could change the difference by ±{(high - low) / 2:.4f} (95 %, "
                f"from {self.over_blocks.df + 1:g} parts of this one)"
            )

    def __repr__(self) -> str:
        return "\n".join(self.lines())

    def as_json(self) -> str:
        """Return one object, with the scores of each by seed."""
        found = self.comparison
        fields: dict[str, Any] = {"answer": self.answer, "sentence": self.sentence, "commands": list(self.commands)}
        if found is not None:
            fields |= {"a": found.a, "b": found.b, "margin": found.margin}
            if found.tells:
                difference = found.difference()
                fields |= {"difference": difference.value, "interval": difference.interval(found.level)}
                fields |= {"paired": found.is_paired, "further_seeds": found.further_seeds()}
        if self.over_blocks is not None:
            fields["over_text"] = {
                "difference": self.over_blocks.value,
                "interval": self.over_blocks.interval(),
                "parts": self.over_blocks.df + 1,
            }
        return json.dumps(fields, ensure_ascii=False) + "\n"


def judge_named(runs: Sequence[Run], margin: float) -> tuple[list[Summary], list[str], Verdict]:
    """Compare two runs by all seeds that lie beside them; return their summaries, their names and the verdict."""
    a, b = summaries = read_summaries(runs, Console().say)
    names = [on_one_line(run.handle) for run in runs]
    return summaries, names, judge(a, b, names, runs_in_folders_of(summaries), margin)


def runs_in_folders_of(summaries: Sequence[Summary]) -> list[Summary]:
    """Return the runs in the same folders, themselves included."""
    folders = dict.fromkeys(summary.run.path.resolve().parent for summary in summaries)
    return [other for folder in folders for other in read_runs(folder)[0]]


def judge(a: Summary, b: Summary, names: Sequence[str], others: Sequence[Summary], margin: float) -> Verdict:
    """Compare the settings of two runs by the best scores over all of their seeds.

    others: the runs in the same folders, to find other seeds. margin: the largest difference of no relevance, in % of
    the score.
    """
    groups = [compare.find_seed_group(run, others) for run in (a, b)]
    named = list(zip(names, groups, strict=True))
    cannot_tell = "cannot tell which is better: "
    if blind := [name for name, group in named if group.first.sees_ahead]:
        return Verdict("unknown", f"{cannot_tell}{blind[0]} {NO_MASK}")
    if compare.names_of_texts(a) != compare.names_of_texts(b):
        command = f"eval {' '.join(shlex.quote(run.run.handle) for run in (a, b))} --file FILE"
        said = f"{cannot_tell}they were scored on different texts. Score them on one:"
        return Verdict("unknown", said, commands=[command])
    states = [(name, group.first.state) for name, group in named]
    if unfinished := [f"{name} is not finished ({state})" for name, state in states if state != "finished"]:
        return Verdict("unknown", f"{cannot_tell}{' and '.join(unfinished)}")
    if unscored := [f"{name} has no score" for name, group in named if not group.scores]:
        return Verdict("unknown", f"{cannot_tell}{' and '.join(unscored)}")
    if compare.is_same_setting(a, b):
        return Verdict("unknown", "both are runs of one setting: their scores differ by chance only")
    found = compare_groups(groups, margin)
    blocks = [[run.run.end.get("best_blocks", ()) for run in group.runs] for group in groups]
    over_text = Difference.over_blocks(*blocks)
    if not found.tells:
        wanted = [max(0, FEW - len(group.scores)) for group in groups]
        return Verdict("unknown", say_too_few(found, names, a, others), found, more_seeds(groups, wanted), over_text)
    further = found.further_seeds() if found.answer == "unknown" else None
    commands = more_seeds(groups, [further or 0] * 2)
    return Verdict(found.answer, say_answer(found, names, further), found, commands, over_text)


def compare_groups(groups: Sequence[RunGroup], margin: float, level: float = LEVEL) -> Comparison:
    """Compare two groups by the best score of each seed. margin: in % of the score."""
    a, b = (group.scores for group in groups)
    return Comparison(a, b, margin / 100 * statistics.mean(a.values()), level)


def compare_with_best(rows: Sequence[RunGroup], margin: float) -> list[Comparison]:
    """Compare each row but the first with the first, the best. The intervals hold for all together (Bonferroni)."""
    level = 1 - (1 - LEVEL) / max(1, len(rows) - 1)
    return [compare_groups((row, rows[0]), margin, level) for row in rows[1:]]


def verdict_columns(rows: Sequence[RunGroup], margin: float) -> dict[str, list[str]]:
    """Return columns that compare the rows with the best, the first of those that can be compared."""
    compared = [row for row in rows if row.first.state == "finished" and row.scores and not row.first.sees_ahead]
    found = dict(zip(map(id, compared), [None, *compare_with_best(compared, margin)], strict=False))
    columns: dict[str, list[str]] = {"difference": [], "95 %": [], "against the best": []}
    for row in rows:
        comparison, cells = found.get(id(row)), ["", "", "best" if len(compared) > 1 and row is compared[0] else ""]
        if comparison is not None and comparison.tells:
            low, high = comparison.difference().interval(comparison.level)
            cells[:2] = f"{comparison.difference().value:.4f}", f"{low:.4f} to {high:.4f}"
        if comparison is not None:
            cells[2] = WORDS.get(comparison.answer, comparison.answer)
        for column, cell in zip(columns.values(), cells, strict=True):
            column.append(cell)
    return columns


def say_answer(found: Comparison, names: Sequence[str], further: int | None) -> str:
    """Return the answer as a sentence. further: seeds of each that would tell."""
    difference, of = found.difference(), "mean best bits per byte"
    (low, high), size = difference.interval(found.level), abs(difference.value)
    seeds = f"{counted(len(found.a), 'seed')} of {names[0]} and {len(found.b)} of {names[1]}"
    seeds = f"{len(found.pairs)} pairs of equal seeds" if found.is_paired else seeds
    if difference.value < 0:
        low, high = -high, -low
    interval = f"95 % interval {low:.4f} to {high:.4f}; {seeds}"
    if found.answer == "same":
        return (
            f"no relevant difference: the {of} differ by {size:.4f} ({interval}), and up to {found.margin:.4f} is not "
            "relevant"
        )
    if found.answer == "unknown":
        would = f"{further} more of each would tell" if further else "even a hundred more of each would not tell"
        return (
            f"cannot tell which is better: the {of} differ by {size:.4f} ({interval}, which holds zero). If means and "
            f"spreads stay, {would}"
        )
    better = names[0] if found.answer == "better" else names[1]
    return f"{better} is better: its {of} is lower by {size:.4f} ({interval})"


def say_too_few(found: Comparison, names: Sequence[str], a: Summary, others: Sequence[Summary]) -> str:
    """Return why too few seeds do not tell, and how much the seeds of other runs of about this size differ."""
    counts = [len(found.a), len(found.b)]
    seeds = " and ".join(f"{counted(n, 'seed')} of {name}" for n, name in zip(counts, names, strict=True))
    size = abs(statistics.mean(found.a.values()) - statistics.mean(found.b.values()))
    beginning = "one seed each" if counts == [1, 1] else seeds
    spreads = compare.spreads_of_similar(a, others, SIMILAR)
    known = f" Seeds of runs of about this size differ by {statistics.median(spreads):.2%}" if spreads else ""
    known += f" (standard deviation, {counted(len(spreads), 'setting')})." if spreads else ""
    return f"{beginning}: cannot tell which is better. The scores differ by {size:.4f}.{known} Train more seeds:"


def more_seeds(groups: Sequence[RunGroup], wanted: Sequence[int]) -> list[str]:
    """Return the commands that train as many more seeds of each setting as are wanted."""
    commands = []
    for group, n in zip(groups, wanted, strict=True):
        used, path = group.scores, group.first.run.path / CONFIG
        unused = [str(seed) for seed in range(1, len(used) + n + 1) if seed not in used]
        if n:
            sweep = f"--sweep {SEED}={','.join(unused[:n])} --name {shlex.quote(f'{group.first.name}-seeds')}"
            commands.append(f"train --config {shlex.quote(str(path))} {sweep}")
    return commands


def describe(runs: Sequence[Summary], names: Sequence[str], verdict: Verdict) -> Iterator[str]:
    """Yield what differs between two runs, figures, config and text; which is better; and the last sample of each."""
    a, b = runs
    keys = [key for key in {**a.config, **b.config} if repr(a.config.get(key, "-")) != repr(b.config.get(key, "-"))]
    cells = [row_cells(RunGroup([run])) for run in runs]
    figures = [header for header in cells[0] if header != "run"]
    columns = {"": [*figures, "", *keys]}
    for run, name, row in zip(runs, names, cells, strict=True):
        values = [write(run.config[key]) if key in run.config else "-" for key in keys]
        columns[name] = [*(row[header] for header in figures), "", *values]
    yield format_table(columns) if keys else f"{format_table(columns)}config: the same\n"
    same_sources = not any(key.startswith(("data.", "tokenizer.")) for key in keys)
    if same_sources and None not in (a.text, b.text) and a.text != b.text:
        yield "text: not the same. It was changed between the two runs.\n"
    yield "\n" + "".join(f"{line}\n" for line in verdict.lines())
    amounts = compare.warn_of_differences([RunGroup([run]) for run in runs])
    if amounts and verdict.comparison is not None:
        yield f"{amounts}\n"
    for run, name in zip(runs, names, strict=True):
        for step, text in read_samples(run.run)[-1:]:
            yield f"\n{name}, sample at step {step}\n"
            yield from (f"  {on_one_line(line)}\n" for line in text.split("\n"))


def find_values(run: Summary, name: str, others: Sequence[Summary]) -> tuple[str, list[RunGroup]]:
    """Return a key, and the settings of a run with other values of it, best first. RunError where there are not two."""
    key = config_key("--by", name, others, [])
    groups = [row for row in compare.find_settings_by(key, run, others) if row.best is not None]
    groups.sort(key=lambda row: len(row.runs))  # of a seed that was trained twice, the larger group counts
    rows = list({repr(row.value(key)): row for row in groups}.values())
    if len(rows) < 2:
        raise RunError(f"no other finished run in its folder differs from it in {key} alone.", f"run {run.name}")
    return key, sorted(rows, key=lambda row: row.best or 0.0)


def table_of_values(key: str, rows: Sequence[RunGroup], margin: float) -> str:
    """Return a row for each value of a key, compared with the best."""
    columns = {
        key: [short_value(row.value(key)) for row in rows],
        "seeds": [str(len(row.scores)) for row in rows],
        "bits/byte": [row_cells(row)["bits/byte"] for row in rows],
    }
    return format_table(columns | verdict_columns(rows, margin), numbers=("seeds", "bits/byte", "difference", "95 %"))


def json_of_values(key: str, rows: Sequence[RunGroup], margin: float) -> str:
    """Return one object: the key, and for each value its scores by seed and the answer against the best."""
    answers = [{}, *({"answer": found.answer} for found in compare_with_best(rows, margin))]
    settings = [
        {"value": row.value(key), "scores": row.scores, **answer} for row, answer in zip(rows, answers, strict=True)
    ]
    return json.dumps({"key": key, "settings": settings}, ensure_ascii=False) + "\n"
