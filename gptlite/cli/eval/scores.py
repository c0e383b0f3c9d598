"""The scores of several models on the same texts, next to baselines such as gzip."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from gptlite.cli.eval.models import SelectedModel
from gptlite.cli.eval.texts import find_texts, load_evaluators
from gptlite.cli.terminal import on_one_line
from gptlite.formatting import abbreviated, counted

if TYPE_CHECKING:
    from gptlite.inference.score import Score

HEADER = ("", "tokenizer", "params", "tokens", "loss", "perplexity", "bits/byte", "bits/char")
BASELINES = {"xz": "xz -9", "gzip": "gzip -9", "bigram": "bigram", "unigram": "unigram"}  # on most texts, best first
COMPRESSORS = ("xz", "gzip")
DROPPED = ("params", "tokens", "tokenizer", "perplexity", "bits/char", "loss")  # by a narrow terminal, in this order
SHRINKABLE = {"": 16}  # the name of a run
LEGEND = ("loss: nats per token. unigram, bigram: the entropy of the text's bytes,", "alone and given the byte before")
FIGURES = ("tokens", "bytes", "characters", "loss", "perplexity", "bits_per_byte", "bits_per_character")


def measure_scores(models: Sequence[SelectedModel], files: Sequence[str] | None, stride: int | None) -> dict[str, Any]:
    """Score every model on every text. None stands for what is not finite.

    {"texts": [{"name", "bytes", "characters", "baselines": {"unigram", "bigram", "gzip", "xz"}}],
     "runs": [{"label", "run", "checkpoint", "step", "tokenizer", "vocab_size", "parameters", "block_size",
               "variant", "scores": [{"tokens", "bytes", "characters", "loss", "perplexity", "bits_per_byte",
                           "bits_per_character"}], "total": {...}}]}

    scores are in the order of texts, baselines in bits per byte. The bytes and characters of a score are those of the
    scored tokens: the first token of a text is not among them where it has no context.
    """
    from gptlite.inference.score import Score

    texts, runs = find_texts(files, models), []
    for evaluator in load_evaluators(models, texts, stride, needs_mask=False):
        model = evaluator.model
        with evaluator.settings():
            scores = [model.score_tokens(ids, batch_size=evaluator.batch_size, stride=stride) for ids in evaluator.ids]
        runs.append(
            {
                **evaluator.run.to_json(),
                "tokenizer": model.tokenizer.kind,
                "vocab_size": model.tokenizer.vocab_size,
                "parameters": model.gpt.n_parameters(),
                "block_size": model.info.model.block_size,
                "variant": model.info.model.variant,
                "scores": [figures_of(score) for score in scores],
                "total": figures_of(Score.total(scores)),
            }
        )
    shown = [
        {"name": text.name, "bytes": text.bytes, "characters": text.characters, "baselines": asdict(text.baselines)}
        for text in texts
    ]
    return {"texts": shown, "runs": runs}


def figures_of(score: Score) -> dict[str, float | None]:
    """Return the figures of a score by name, None for those that are not finite."""
    figures = {name: getattr(score, name) for name in FIGURES}
    return {name: figure if math.isfinite(figure) else None for name, figure in figures.items()}


def describe_scores(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield a table per text, one for all texts together, and the legend."""
    texts, runs = values["texts"], values["runs"]
    for i, text in enumerate(texts):
        yield from score_table(text, [(run, run["scores"][i]) for run in runs])
    if len(texts) > 1:
        yield from score_table(total_of(texts), [(run, run["total"]) for run in runs])
    yield from LEGEND
    for run in runs:
        if run["variant"] == "no_mask":
            yield (
                f"{run['label']} has no mask (model.variant: no_mask): it reads the tokens that it is scored on, so "
                "its scores are no predictions"
            )


def total_of(texts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return several texts as one, with the mean baselines: each text is compressed on its own."""
    n_bytes, characters = (sum(text[key] for text in texts) for key in ("bytes", "characters"))
    means = {key: sum(text["baselines"][key] * text["bytes"] for text in texts) / n_bytes for key in BASELINES}
    return {"name": f"all {len(texts)} texts", "bytes": n_bytes, "characters": characters, "baselines": means}


def score_table(
    text: Mapping[str, Any], scores: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]
) -> Iterator[str]:
    """Yield a heading and the table of a text, with a line per run and per baseline."""
    from gptlite.cli import tables
    from gptlite.data.dataset.manifest import MIN_COMPRESSOR_BYTES

    lines = [score_cells(run, score) for run, score in scores]
    for key, name in BASELINES.items():
        if text["bytes"] >= MIN_COMPRESSOR_BYTES or key not in COMPRESSORS:
            bits = text["baselines"][key]
            lines.append((name, *[""] * 5, f"{bits:.4f}", f"{bits * text['bytes'] / text['characters']:.4f}"))
    columns = {header: cells for header, *cells in zip(HEADER, *lines, strict=True)}
    yield f"{on_one_line(text['name'])}: {text['bytes']:,} bytes, {counted(text['characters'], 'character')}"
    yield tables.format_table(
        columns, tables.terminal_width(), numbers=HEADER[2:], shrinkable=SHRINKABLE, dropped=DROPPED
    )


def score_cells(run: Mapping[str, Any], score: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the cells of a run, in the order of HEADER."""
    loss, perplexity, *bits = (math.inf if score[name] is None else score[name] for name in FIGURES[3:])
    return (
        run["label"],
        f"{run['tokenizer']} {run['vocab_size']}",
        abbreviated(run["parameters"]),
        f"{score['tokens']:,}",
        f"{loss:.4f}",
        f"{perplexity:.3f}" if perplexity < 1e5 else f"{perplexity:.4g}",
        *(f"{figure:.4f}" for figure in bits),
    )
