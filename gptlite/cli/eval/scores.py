"""The scores of several models on the same texts, next to baselines such as gzip: tables and JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from gptlite.cli.eval.eval_texts import Text, find_texts
from gptlite.cli.eval.models import SelectedModel, load_evaluators
from gptlite.cli.terminal import on_one_line
from gptlite.formatting import abbreviated, counted

if TYPE_CHECKING:
    from gptlite.inference.language_model import LanguageModel
    from gptlite.inference.score import Score

HEADER = ("", "tokenizer", "params", "tokens", "loss", "perplexity", "bits/byte", "bits/char")
BASELINES = {"xz": "xz -9", "gzip": "gzip -9", "bigram": "bigram", "unigram": "unigram"}  # on most texts, best first
COMPRESSORS = ("xz", "gzip")
DROPPED = ("params", "tokens", "tokenizer", "perplexity", "bits/char", "loss")  # by a narrow terminal, in this order
SHRINKABLE = {"": 16}  # the name of a run
LEGEND = ("loss: nats per token. unigram, bigram: the entropy of the text's bytes,", "alone and given the byte before")
FIGURES = ("tokens", "bytes", "characters", "loss", "perplexity", "bits_per_byte", "bits_per_character")


@dataclass(frozen=True)
class ScoreRow:
    """The scores of a model: one per text, and their total."""

    run: SelectedModel
    model: LanguageModel
    scores: Sequence[Score]
    total: Score


def score_lines(
    models: Sequence[SelectedModel], files: Sequence[str] | None, stride: int | None, *, as_json: bool
) -> Iterator[str]:
    """Yield the scores of every model: JSON, or a table per text, one for all texts together, and the legend."""
    from gptlite.inference.score import Score

    texts, rows = find_texts(files, models), []
    for each in load_evaluators(models, texts, stride):
        size = each.run.cfg.eval.batch_size
        with each.settings():
            scores = [each.model.score_tokens(ids, batch_size=size, stride=stride) for ids in each.ids]
        rows.append(ScoreRow(each.run, each.model, scores, Score.total(scores)))
    if as_json:
        yield json.dumps(as_values(texts, rows))
        return
    for i, text in enumerate(texts):
        yield from score_table(text, [(row, row.scores[i]) for row in rows])
    if len(texts) > 1:
        yield from score_table(total_of(texts), [(row, row.total) for row in rows])
    yield from LEGEND
    yield from (
        f"{row.run.label} has no mask (model.variant: no_mask): it reads the tokens that it is scored on, so its "
        "scores are no predictions"
        for row in rows
        if row.model.info.model.sees_ahead
    )


def as_values(texts: Sequence[Text], rows: Sequence[ScoreRow]) -> dict[str, Any]:
    """Return the scores for --json, with None for what is not finite.

    {"texts": [{"name", "bytes", "characters", "baselines": {"unigram", "bigram", "gzip", "xz"}}],
     "runs": [{"run", "checkpoint", "step", "tokenizer", "vocab_size", "parameters", "block_size",
               "variant", "scores": [{"tokens", "bytes", "characters", "loss", "perplexity", "bits_per_byte",
                           "bits_per_character"}], "total": {...}}]}

    scores are in the order of texts, baselines in bits per byte. The bytes and characters of a score are those of the
    scored tokens: the first token of a text is not among them where it has no context.
    """
    return {
        "texts": [
            {"name": text.name, "bytes": text.bytes, "characters": text.characters, "baselines": asdict(text.baselines)}
            for text in texts
        ],
        "runs": [
            {
                **row.run.to_json(),
                "tokenizer": row.model.tokenizer.kind,
                "vocab_size": row.model.tokenizer.vocab_size,
                "parameters": row.model.gpt.n_parameters(),
                "block_size": row.model.info.model.block_size,
                "variant": row.model.info.model.variant,
                "scores": [figures_of(score) for score in row.scores],
                "total": figures_of(row.total),
            }
            for row in rows
        ],
    }


def figures_of(score: Score) -> dict[str, float | None]:
    """Return the figures of a score by name, None for those that are not finite."""
    figures = {name: getattr(score, name) for name in FIGURES}
    return {name: figure if math.isfinite(figure) else None for name, figure in figures.items()}


def score_table(text: Text, scores: Sequence[tuple[ScoreRow, Score]]) -> Iterator[str]:
    """Yield a heading and the table of a text, with a line per run and per baseline."""
    from gptlite.cli import tables
    from gptlite.data.dataset.manifest import MIN_COMPRESSOR_BYTES

    lines = [score_cells(row, score) for row, score in scores]
    for key, name in BASELINES.items():
        if text.bytes >= MIN_COMPRESSOR_BYTES or key not in COMPRESSORS:
            bits = getattr(text.baselines, key)
            lines.append((name, *[""] * 5, f"{bits:.4f}", f"{bits * text.bytes / text.characters:.4f}"))
    columns = {header: cells for header, *cells in zip(HEADER, *lines, strict=True)}
    yield f"{on_one_line(text.name)}: {text.bytes:,} bytes, {counted(text.characters, 'character')}"
    yield tables.format_table(
        columns, tables.terminal_width(), numbers=HEADER[2:], shrinkable=SHRINKABLE, dropped=DROPPED
    )


def score_cells(row: ScoreRow, score: Score) -> tuple[str, ...]:
    """Return the cells of a run, in the order of HEADER."""
    tokenizer = row.model.tokenizer
    return (
        row.run.label,
        f"{tokenizer.kind} {tokenizer.vocab_size}",
        abbreviated(row.model.gpt.n_parameters()),
        f"{score.tokens:,}",
        f"{score.loss:.4f}",
        f"{score.perplexity:.3f}" if score.perplexity < 1e5 else f"{score.perplexity:.4g}",
        f"{score.bits_per_byte:.4f}",
        f"{score.bits_per_character:.4f}",
    )


def total_of(texts: Sequence[Text]) -> Text:
    """Return several texts as one, with the mean baselines: each text is compressed on its own."""
    n_bytes = sum(text.bytes for text in texts)
    means = {key: sum(getattr(text.baselines, key) * text.bytes for text in texts) / n_bytes for key in BASELINES}
    baselines = replace(texts[0].baselines, **means)
    return Text(f"all {len(texts)} texts", n_bytes, sum(text.characters for text in texts), baselines, "", {})
