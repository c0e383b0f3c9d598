"""`gptlite eval --memorised`: how much of a model's samples is copied word for word from its training text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from gptlite.cli.eval.eval_texts import find_prepared
from gptlite.cli.eval.models import SelectedModel
from gptlite.formatting import counted

if TYPE_CHECKING:
    from gptlite.data.dataset.prepared import Prepared
    from gptlite.inference.memorization import Copied, Memorised

N_SHOWN = 10  # passages of a run
PASSAGE_WIDTH = 72  # columns


def memorization_lines(models: Sequence[SelectedModel], *, as_json: bool) -> Iterator[str]:
    """Sample from every model. Yield how much of that its training text contains, as lines or JSON."""
    texts = find_prepared(models)
    # Importing torch takes a second, so the command line is checked first.
    from gptlite.compute.device import settings
    from gptlite.inference.load import load_checkpoint
    from gptlite.inference.memorization import measure_memorisation

    found = []
    for selected in models:
        model, prepared = load_checkpoint(selected.checkpoint, selected.cfg.run, decoding=True), texts[selected.label]
        with settings(model.compute, deterministic=selected.cfg.run.deterministic):
            found.append((selected, prepared, measure_memorisation(model, prepared)))
    if as_json:
        yield json.dumps(as_values(found))
    else:
        yield from as_lines(found)


def as_lines(found: Sequence[tuple[SelectedModel, Prepared, Memorised]]) -> Iterator[str]:
    """Yield lines for the terminal: the copied fractions and the longest passages."""
    from gptlite.data.preparing.verbatim import SHORTEST
    from gptlite.inference.memorization import N_SAMPLES, SAMPLE_TOKENS, TEMPERATURE
    from gptlite.loggers.progress_bar import preview

    for model, prepared, result in found:
        train, samples, validation = prepared.manifest.train, result.samples, result.validation
        longest = samples.stretches[:N_SHOWN]
        yield from (
            f"{model.label}: {N_SAMPLES} samples of at most {SAMPLE_TOKENS} tokens at temperature {TEMPERATURE:g}",
            f"searched: the training text, {train.bytes:,} bytes in {counted(train.documents, 'document')}",
            "",
            f"copied word for word, in passages of at least {SHORTEST} characters:",
            f"  samples          {samples.share:6.1%} of {counted(samples.characters, 'character')}",
            f"  validation text  {validation.share:6.1%} of {counted(validation.characters, 'character')}, "
            "for comparison: the model was not trained on it",
            "",
            "longest copied passages of the samples, in characters:" if longest else "no such passage in the samples",
            *(f"{len(passage):6}  {preview(passage, PASSAGE_WIDTH)}" for passage in longest),
            "",
        )


def as_values(found: Sequence[tuple[SelectedModel, Prepared, Memorised]]) -> dict[str, Any]:
    """Return the results for --json.

    {"n", "max_new_tokens", "temperature", "seed" of the samples, "min_characters" of a passage,
     "runs": [{"run", "checkpoint", "step", "searched": {"prepared", "bytes", "documents"},
               "samples": {"characters", "copied_characters", "copied_fraction", "passages"}, "validation": {...}}]}
    """
    from gptlite.data.preparing.verbatim import SHORTEST
    from gptlite.inference.memorization import N_SAMPLES, SAMPLE_TOKENS, SEED, TEMPERATURE

    def values_of(copied: Copied) -> dict[str, Any]:
        return {
            "characters": copied.characters,
            "copied_characters": copied.verbatim,
            "copied_fraction": copied.share,
            "passages": list(copied.stretches),
        }

    return {
        "n": N_SAMPLES,
        "max_new_tokens": SAMPLE_TOKENS,
        "temperature": TEMPERATURE,
        "seed": SEED,
        "min_characters": SHORTEST,
        "runs": [
            {
                **model.to_json(),
                "searched": {
                    "prepared": str(prepared.path),
                    "bytes": prepared.manifest.train.bytes,
                    "documents": prepared.manifest.train.documents,
                },
                "samples": values_of(result.samples),
                "validation": values_of(result.validation),
            }
            for model, prepared, result in found
        ],
    }
