"""Scores of several runs side by side, with what a few simple models make of the same text."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gptlite.cli.eval.eval_texts import Text
from gptlite.cli.eval.evaluator import Evaluator
from gptlite.cli.eval.models import SelectedModel
from gptlite.formatting import abbreviated, counted

if TYPE_CHECKING:
    from gptlite.inference.language_model import LanguageModel
    from gptlite.inference.score import Score

HEADER = ("", "tokenizer", "params", "tokens", "loss", "perplexity", "bits/byte", "bits/char")
# The best of them first, on most texts.
REFERENCES = {"xz": "xz -9", "gzip": "gzip -9", "bigram": "bigram", "unigram": "unigram"}
COMPRESSORS = ("xz", "gzip")
DROPPED = ("params", "tokens", "tokenizer", "perplexity", "bits/char", "loss")  # by a narrow terminal, the first first
LEAST = {"": 16}  # of a run's name
LEGEND = (
    "loss: nats per token; unigram, bigram: entropy of the text's own bytes, each",
    "alone and each after the one before it",
)


@dataclass(frozen=True)
class ScoreRow:
    """What became of one run: a score for each text, and of all texts together."""

    run: SelectedModel
    model: LanguageModel
    scores: Sequence[Score]
    total: Score

    @classmethod
    def of(cls, judge: Evaluator, stride: int | None) -> ScoreRow:
        """Let a run's model read the texts."""
        from gptlite.inference.score import Score

        batch_size = judge.run.cfg.eval.batch_size
        with judge.settings():
            scores = [judge.model.score_tokens(ids, batch_size=batch_size, stride=stride) for ids in judge.ids]
        return cls(judge.run, judge.model, scores, Score.total(scores))


def as_values(texts: Sequence[Text], rows: Sequence[ScoreRow]) -> dict[str, Any]:
    """All of it as plain values; what is not finite becomes None.

    {"texts": [{"name", "bytes", "characters", "reference": {"unigram", "bigram", "gzip", "xz"}}],
     "runs": [{"run", "checkpoint", "step", "tokenizer", "vocab_size", "parameters", "block_size",
               "scores": [{"tokens", "bytes", "characters", "loss", "perplexity", "bits_per_byte",
                           "bits_per_character"}], "total": {...}}]}

    scores are in the order of texts. Reference lines are in bits per byte. The bytes and characters of a score are
    those of the tokens that were scored: where the first token of a text has none before it, it is not among them.
    """
    return {
        "texts": [
            {
                "name": text.name,
                "bytes": text.bytes,
                "characters": text.characters,
                "reference": dataclasses.asdict(text.reference),
            }
            for text in texts
        ],
        "runs": [
            {
                "run": row.run.name,
                "checkpoint": str(row.run.checkpoint.path),
                "step": row.run.checkpoint.step,
                "tokenizer": row.model.tokenizer.kind,
                "vocab_size": row.model.tokenizer.vocab_size,
                "parameters": row.model.gpt.n_parameters(),
                "block_size": row.model.info.model.block_size,
                "scores": [figures_of(score) for score in row.scores],
                "total": figures_of(row.total),
            }
            for row in rows
        ],
    }


def figures_of(score: Score) -> dict[str, float | None]:
    """What is reported of a score."""
    names = ("tokens", "bytes", "characters", "loss", "perplexity", "bits_per_byte", "bits_per_character")
    figures = {name: getattr(score, name) for name in names}
    return {name: figure if math.isfinite(figure) else None for name, figure in figures.items()}


def tables(texts: Sequence[Text], rows: Sequence[ScoreRow]) -> Iterator[str]:
    """Lines for people: a table for each text, and one for all of them where they are several."""
    for place, text in enumerate(texts):
        yield from table(text, [(row, row.scores[place]) for row in rows])
    if len(texts) > 1:
        yield from table(together(texts), [(row, row.total) for row in rows])
    yield from LEGEND


def table(text: Text, scores: Sequence[tuple[ScoreRow, Score]]) -> Iterator[str]:
    """What every run, and every simple model, makes of a text."""
    from gptlite.cli.tables import cut_in_the_middle, fitted, one_line, terminal_width
    from gptlite.cli.tables import table as written
    from gptlite.data.baselines import MIN_COMPRESSOR_BYTES

    lines = [cells_of(row, score) for row, score in scores]
    for key, name in REFERENCES.items():
        if text.bytes >= MIN_COMPRESSOR_BYTES or key not in COMPRESSORS:
            bits = getattr(text.reference, key)
            lines.append((name, *[""] * 5, f"{bits:.4f}", f"{bits * text.bytes / text.characters:.4f}"))
    columns = {header: list(map(one_line, cells)) for header, *cells in zip(HEADER, *lines, strict=True)}
    widths = fitted(columns, terminal_width(), least=LEAST, dropped=DROPPED)
    columns[""] = [cut_in_the_middle(name, widths[""]) for name in columns[""]]
    yield f"{text.name}: {text.bytes:,} bytes, {counted(text.characters, 'character')}"
    yield written(columns, widths, numbers=HEADER[2:])


def cells_of(row: ScoreRow, score: Score) -> tuple[str, ...]:
    """The line of a run."""
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


def together(texts: Sequence[Text]) -> Text:
    """Several texts as one, to which simple models, too, come anew for each."""
    n_bytes = sum(text.bytes for text in texts)
    means = {key: sum(getattr(text.reference, key) * text.bytes for text in texts) / n_bytes for key in REFERENCES}
    reference = dataclasses.replace(texts[0].reference, **means)
    return Text(f"all {len(texts)} texts", n_bytes, sum(text.characters for text in texts), reference, "", {})
