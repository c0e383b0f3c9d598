"""`gptlite eval --exposure-bias`: how well a model predicts true text after text that it wrote itself."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from gptlite.cli.eval.eval_texts import find_texts
from gptlite.cli.eval.models import SelectedModel, load_evaluators
from gptlite.cli.terminal import on_one_line
from gptlite.errors import located

if TYPE_CHECKING:
    from gptlite.course.exposure_bias import Difference, PrefixScores

HEADER = ("after the prefix", "true", "own", "other", "own - true", "own - other")


def exposure_lines(models: Sequence[SelectedModel], files: Sequence[str] | None, *, as_json: bool) -> Iterator[str]:
    """Measure every model on every text. Yield tables with what they show, or JSON."""
    texts = find_texts(files, models)
    evaluators = load_evaluators(models, texts)
    for evaluator in evaluators:
        with located(evaluator.run.label):
            evaluator.model.require_mask()
    from gptlite.course.exposure_bias import measure_exposure_bias

    found = []
    for evaluator in evaluators:
        run = evaluator.run
        for text, ids in zip(texts, evaluator.ids, strict=True):
            with located(f"{run.label}: {text.name}"), evaluator.settings():
                scores = measure_exposure_bias(evaluator.model, ids, batch_size=run.cfg.eval.batch_size)
            found.append((run, text.name, scores))
    if as_json:
        yield json.dumps({"runs": [{**run.to_json(), "text": name, **as_values(each)} for run, name, each in found]})
    else:
        for run, name, scores in found:
            yield from as_lines(f"{run.label}: {on_one_line(name)}", scores)


def as_lines(title: str, scores: PrefixScores) -> Iterator[str]:
    """Yield the table of a model and a text, and what it shows."""
    from gptlite.cli import tables
    from gptlite.course.exposure_bias import Difference

    n_windows, length = scores.true.shape
    lines = []
    for first, last in [*spans(length), (1, length)]:
        true, own, other = (each[:, first - 1 : last] for each in (scores.true, scores.own, scores.other))
        name = "all" if last - first + 1 == length else f"token {first}" if first == last else f"{first} - {last}"
        gaps = (Difference.of(own, true), Difference.of(own, other))
        lines.append((name, *(f"{each.mean():.3f}" for each in (true, own, other)), *map(shown, gaps)))
    columns = {header: cells for header, *cells in zip(HEADER, *lines, strict=True)}
    yield from (
        title,
        f"log p of the true text, in nats per token, after a prefix of {scores.prefix} tokens, which is",
        "  true   the one that the text has there",
        "  own    written by the model, from the same first token",
        "  other  true text, but from another place",
        "",
        tables.format_table(columns, tables.terminal_width(), numbers=HEADER[1:]),
        f"Means of {n_windows} windows; ± is a 95% interval over windows.",
        *conclusion(Difference.of(scores.own, scores.true), Difference.of(scores.own, scores.other)),
        "",
    )


def conclusion(to_true: Difference, to_other: Difference) -> Iterator[str]:
    """Yield what the differences say. to_true, to_other: from the model's own prefix to each of the others."""
    yield (
        f"After the model's own prefix, log p of the text is {compared(to_true)} per token than after the true one. "
        "Even a perfect model would lose here, because its own text leads elsewhere."
    )
    if abs(to_other.mean) <= to_other.margin:
        verdict = "These windows show no exposure bias"
    elif to_other.mean < 0:
        verdict = "Its own text is a worse context than true text: exposure bias"
    else:
        verdict = "Its own text is no worse a context than true text: no exposure bias is seen"
    yield f"It is {compared(to_other)} than after other true text, which leads elsewhere as well. {verdict}."


def compared(difference: Difference) -> str:
    """Return a difference in words."""
    return f"{abs(difference.mean):.3f} ± {difference.margin:.3f} nats {'lower' if difference.mean < 0 else 'higher'}"


def shown(difference: Difference) -> str:
    """Return a difference with its margin."""
    return f"{difference.mean:+.3f} ± {difference.margin:.3f}"


def spans(length: int) -> list[tuple[int, int]]:
    """Return the first and last positions of the rows of a table, each about twice as long as the one before.

    >>> spans(8), spans(33)[-2:]
    ([(1, 1), (2, 2), (3, 4), (5, 8)], [(9, 16), (17, 33)])
    """
    edges = [0, *(2**i for i in range(length.bit_length()) if 3 * 2**i <= 2 * length), length]
    return [(before + 1, edge) for before, edge in itertools.pairwise(edges)]


def as_values(scores: PrefixScores) -> dict[str, Any]:
    """Return the results for --json.

    {"windows", "prefix_tokens", "temperature", "seed" of the model's prefixes, "true", "own", "other": the mean log p
     of each token after the prefix, "own_minus_true", "own_minus_other": {"mean", "margin"} over all of these}
    """
    from gptlite.course.exposure_bias import SEED, TEMPERATURE, Difference

    def difference(other: Any) -> dict[str, float]:
        found = Difference.of(scores.own, other)
        return {"mean": found.mean, "margin": found.margin}

    return {
        "windows": len(scores.true),
        "prefix_tokens": scores.prefix,
        "temperature": TEMPERATURE,
        "seed": SEED,
        **{name: getattr(scores, name).mean(0).tolist() for name in ("true", "own", "other")},
        "own_minus_true": difference(scores.true),
        "own_minus_other": difference(scores.other),
    }
