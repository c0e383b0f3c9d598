"""What is measured of models: scores beside baselines such as gzip, exposure bias, copies of the training text."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gptlite.cli.eval.inputs import Evaluator, SelectedModel, Text, find_prepared, find_texts, load_evaluators
from gptlite.cli.terminal import NO_MASK, format_table, on_one_line
from gptlite.data.dataset.manifest import MIN_COMPRESSOR_BYTES
from gptlite.errors import located
from gptlite.formatting import abbreviated, counted
from gptlite.loggers.progress_bar import preview

# On most texts, best first.
BASELINES = {"ppmd": "PPMd", "xz": "xz -9", "gzip": "gzip -9", "bigram": "bigram", "unigram": "unigram"}
COMPRESSORS = ("ppmd", "xz", "gzip")
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
PREFIXES = ("true", "own", "other")
GAPS = {"own_minus_true": "own - true", "own_minus_other": "own - other"}
PASSAGE_WIDTH = 72  # columns


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
    model, shape, rows = evaluator.model, evaluator.model.gpt.cfg, []
    about = {
        **evaluator.run.to_json(),
        "tokenizer": f"{model.tokenizer.kind} {model.tokenizer.vocab_size}",
        "parameters": model.gpt.n_parameters(),
        "block_size": shape.block_size,
        "variant": shape.variant,
    }
    with evaluator.settings():
        for ids in evaluator.ids:
            score = model.score_tokens(ids, batch_size=evaluator.run.cfg.eval.batch_size, stride=stride)
            figures = {name: getattr(score, name) for name in FIGURES}
            rows.append({**about, **{key: x if math.isfinite(x) else None for key, x in figures.items()}})
    return rows


def baseline_rows(text: Text, *, bytes: int, characters: int) -> Iterator[dict[str, Any]]:
    """Yield the row of each baseline; for a short text, the results of compressors are mostly headers."""
    for key, name in BASELINES.items():
        bits = getattr(text.baselines, key)
        if bits is not None and (bytes >= MIN_COMPRESSOR_BYTES or key not in COMPRESSORS):
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


def measure_exposure(models: Sequence[SelectedModel], files: Sequence[str] | None) -> dict[str, Any]:
    """Measure the exposure bias of every model on every text.

    {"temperature", "seed" of the model's prefixes, "runs": [{"label", "run", "checkpoint", "step", "text", "windows",
     "prefix_tokens", "rows": those of `summarize`}]}
    """
    texts = find_texts(files, models)
    evaluators = load_evaluators(models, texts)
    from gptlite.course.exposure_bias import SEED, TEMPERATURE, measure_exposure_bias, summarize

    runs = []
    for evaluator in evaluators:
        for text, ids in zip(texts, evaluator.ids, strict=True):
            with located(f"{evaluator.run.label}: {text.name}"), evaluator.settings():
                scores = measure_exposure_bias(evaluator.model, ids, batch_size=evaluator.run.cfg.eval.batch_size)
            sizes = {"windows": len(scores.true), "prefix_tokens": scores.prefix}
            runs.append({**evaluator.run.to_json(), "text": text.name, **sizes, "rows": summarize(scores)})
    return {"temperature": TEMPERATURE, "seed": SEED, "runs": runs}


def describe_exposure(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield a table of each model and text, and what it shows."""
    for run in values["runs"]:
        rows = run["rows"]
        columns = {"tokens after it": [row["tokens"] for row in rows]}
        columns |= {name: [f"{row[name]:.3f}" for row in rows] for name in PREFIXES}
        for gap, name in GAPS.items():
            columns[name] = [f"{row[gap]['mean']:+.3f} ± {row[gap]['margin']:.3f}" for row in rows]
        yield from (
            f"{run['label']}: {on_one_line(run['text'])}",
            f"log p of the true text, in nats per token, after a prefix of {run['prefix_tokens']} tokens, which is",
            "  true   the one that the text has there",
            "  own    written by the model, from the same first token",
            "  other  true text, but from another place",
            "",
            format_table(columns, numbers=[*PREFIXES, *GAPS.values()]),
            f"Means of {run['windows']} windows; ± is a 95% interval over windows.",
            "own - true: even a perfect model would lose here, because its own text leads elsewhere.",
            f"own - other: {conclusion(**rows[-1]['own_minus_other'])}",
            "",
        )


def conclusion(mean: float, margin: float) -> str:
    """Say what log p after the own prefix shows, compared with that after other true text: mean difference, in nats."""
    if abs(mean) <= margin:
        return "these windows show no exposure bias."
    if mean < 0:
        return "the model's own text is a worse context than true text: exposure bias."
    return "the model's own text is no worse a context than true text: no exposure bias is seen."


def measure_copies(models: Sequence[SelectedModel]) -> dict[str, Any]:
    """Sample from every model, and search its training text for what it wrote.

    {"n", "max_new_tokens", "temperature", "seed" of the samples, "min_characters" of a passage,
     "runs": [{"label", "run", "checkpoint", "step", "searched_bytes", "samples": {"characters" in all, "verbatim"
               copied, "share" of them, "longest" run}, "validation": {...}}]}
    """
    prepared = find_prepared(models)
    # Importing torch takes a second, so the command line is checked first.
    from gptlite.compute.device import settings
    from gptlite.inference.load import load_checkpoint
    from gptlite.inference.memorization import SAMPLING, SHORTEST, measure_memorisation

    runs = []
    for selected in models:
        text = prepared[selected.label]
        model = load_checkpoint(selected.checkpoint, selected.cfg.run, decoding=True)
        with settings(model.compute, deterministic=selected.cfg.run.deterministic):
            samples, validation = (
                vars(copied) | {"share": copied.share} for copied in measure_memorisation(model, text)
            )
        found = {"searched_bytes": text.manifest.train.bytes, "samples": samples, "validation": validation}
        runs.append({**selected.to_json(), **found})
    return {**SAMPLING, "min_characters": SHORTEST, "runs": runs}


def describe_copies(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield the copied fractions and the longest run of copied characters of each model."""
    how = f"{values['n']} samples of at most {values['max_new_tokens']} tokens at temperature {values['temperature']:g}"
    for run in values["runs"]:
        samples, validation = (
            f"{run[part]['share']:6.1%} of {counted(run[part]['characters'], 'character')}"
            for part in ("samples", "validation")
        )
        longest = run["samples"]["longest"]
        yield from (
            f"{run['label']}: {how}",
            f"copied word for word from the training text, {run['searched_bytes']:,} bytes, in passages of at least "
            f"{values['min_characters']} characters:",
            f"  samples          {samples}",
            f"  validation text  {validation}, for comparison: the model was not trained on it",
            f"the longest run of them has {len(longest)} characters: {preview(longest, PASSAGE_WIDTH)}"
            if longest
            else "",
        )
