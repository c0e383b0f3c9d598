"""The scores of models on texts, next to baselines such as gzip."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gptlite.cli.eval.inputs import Evaluator, SelectedModel, Text, find_texts, load_evaluators
from gptlite.cli.tables import format_table
from gptlite.cli.terminal import NO_MASK, on_one_line
from gptlite.formatting import abbreviated, counted

BASELINES = {"xz": "xz -9", "gzip": "gzip -9", "bigram": "bigram", "unigram": "unigram"}  # on most texts, best first
COMPRESSORS = ("xz", "gzip")
COLUMNS: Mapping[str, tuple[str, Callable[[Any], str]]] = {  # the entry of a row, and how it is written
    "": ("label", str),
    "tokenizer": ("tokenizer", str),
    "params": ("parameters", abbreviated),
    "tokens": ("tokens", "{:,}".format),
    "loss": ("loss", "{:.4f}".format),
    "perplexity": ("perplexity", lambda x: f"{x:.3f}" if x < 1e5 else f"{x:.4g}"),
    "bits/byte": ("bits_per_byte", "{:.4f}".format),
    "bits/char": ("bits_per_character", "{:.4f}".format),
}
FIGURES = ("tokens", "bytes", "characters", "loss", "perplexity", "bits_per_byte", "bits_per_character")
DROPPED = ("params", "tokens", "tokenizer", "perplexity", "bits/char", "loss")  # by a narrow terminal, in this order
LEGEND = ("loss: nats per token. unigram, bigram: the entropy of the text's bytes,", "alone and given the byte before")


def measure_scores(models: Sequence[SelectedModel], files: Sequence[str] | None, stride: int | None) -> dict[str, Any]:
    """Score every model on every text. None stands for what is not finite.

    {"texts": [{"name", "bytes", "characters", "rows": a row for each model and then for each baseline}]}
    a model's row:    {"label", "run", "checkpoint", "step", "tokenizer", "parameters", "block_size", "variant",
                       "tokens", "bytes", "characters", "loss", "perplexity", "bits_per_byte", "bits_per_character"}
    a baseline's row: {"label", "bits_per_byte", "bits_per_character"}

    The bytes and characters of a row are those of the scored tokens: the first token of a text is not among them where
    it has no context.
    """
    texts = find_texts(files, models)
    evaluators = load_evaluators(models, texts, stride, needs_mask=False)
    rows = [score_texts(evaluator, stride) for evaluator in evaluators]  # of each model on each text
    shown = []
    for text, *of_text in zip(texts, *rows, strict=True):
        sizes = {"bytes": len(text.content.encode()), "characters": len(text.content)}
        shown.append({"name": text.name, **sizes, "rows": [*of_text, *baseline_rows(text, **sizes)]})
    return {"texts": shown}


def score_texts(evaluator: Evaluator, stride: int | None) -> list[dict[str, Any]]:
    """Return the rows of a model."""
    model, shape, rows = evaluator.model, evaluator.model.info.model, []
    about = {
        **evaluator.run.to_json(),
        "tokenizer": f"{model.tokenizer.kind} {model.tokenizer.vocab_size}",
        "parameters": model.gpt.n_parameters(),
        "block_size": shape.block_size,
        "variant": shape.variant,
    }
    with evaluator.settings():
        for ids in evaluator.ids:
            score = model.score_tokens(ids, batch_size=evaluator.batch_size, stride=stride)
            figures = {name: getattr(score, name) for name in FIGURES}
            rows.append({**about, **{key: x if math.isfinite(x) else None for key, x in figures.items()}})
    return rows


def baseline_rows(text: Text, *, bytes: int, characters: int) -> Iterator[dict[str, Any]]:
    """Yield the row of each baseline; for a short text, the results of compressors are mostly headers."""
    from gptlite.data.dataset.manifest import MIN_COMPRESSOR_BYTES

    for key, name in BASELINES.items():
        if bytes >= MIN_COMPRESSOR_BYTES or key not in COMPRESSORS:
            bits = getattr(text.baselines, key)
            yield {"label": name, "bits_per_byte": bits, "bits_per_character": bits * bytes / characters}


def describe_scores(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield a heading and a table per text, and the legend."""
    for text in values["texts"]:
        columns = {
            header: [write(math.inf if row[key] is None else row[key]) if key in row else "" for row in text["rows"]]
            for header, (key, write) in COLUMNS.items()
        }
        yield f"{on_one_line(text['name'])}: {text['bytes']:,} bytes, {counted(text['characters'], 'character')}"
        yield format_table(columns, numbers=list(COLUMNS)[2:], dropped=DROPPED)
    yield from LEGEND
    for row in values["texts"][0]["rows"]:
        if row.get("variant") == "no_mask":
            yield f"{row['label']} {NO_MASK}"
