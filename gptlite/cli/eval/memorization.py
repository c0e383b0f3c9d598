"""`gptlite eval --memorised`: what of a model's writing stands word for word in its training text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from gptlite.cli.eval.eval_texts import prepared_of
from gptlite.cli.eval.models import SelectedModel
from gptlite.errors import Problem, RunError, gathered
from gptlite.formatting import counted

if TYPE_CHECKING:
    from gptlite.data.prepared import Prepared
    from gptlite.inference.memorization import Copied, Memorised

SHOWN = 10  # stretches of a run
WIDTH = 72  # columns of one


def by_heart(runs: Sequence[SelectedModel]) -> list[tuple[SelectedModel, Prepared, Memorised]]:
    """What every run has memorised. RunError with every problem, where a run's text is not there."""
    problems: list[Problem] = []
    texts = []
    for run in runs:
        with gathered(problems):
            texts.append(prepared_of(run, instead=""))
    if problems:
        raise RunError(problems)
    # torch: not before the command line has been checked.
    from gptlite.compute.device import settings
    from gptlite.inference.language_model import load_checkpoint
    from gptlite.inference.memorization import memorised

    found = []
    for run, prepared in zip(runs, texts, strict=True):
        model = load_checkpoint(run.checkpoint, run.cfg.run, decoding=True)
        with settings(model.compute, deterministic=run.cfg.run.deterministic):
            found.append((run, prepared, memorised(model, prepared)))
    return found


def as_lines(found: Sequence[tuple[SelectedModel, Prepared, Memorised]]) -> Iterator[str]:
    """For people: shares, and the longest stretches."""
    from gptlite.data.verbatim import SHORTEST
    from gptlite.inference.memorization import N_SAMPLES, SAMPLE_TOKENS, TEMPERATURE
    from gptlite.loggers.progress_bar import preview

    for run, prepared, result in found:
        train, samples, validation = prepared.manifest.train, result.samples, result.validation
        longest = samples.stretches[:SHOWN]
        yield from (
            f"{run.label}: {N_SAMPLES} samples of at most {SAMPLE_TOKENS} tokens at temperature {TEMPERATURE:g}",
            f"searched: all of its training text, {train.bytes:,} bytes in {counted(train.documents, 'document')}",
            "",
            f"in stretches of {SHORTEST} characters or more that stand there word for word:",
            f"  samples          {samples.share:6.1%} of {counted(samples.characters, 'character')}",
            f"  validation text  {validation.share:6.1%} of {counted(validation.characters, 'character')}, "
            "which it was not trained on",
            "",
            "the longest of the samples, in characters:" if longest else "none in the samples",
            *(f"{len(stretch):6}  {preview(stretch, WIDTH)}" for stretch in longest),
            "",
        )


def as_values(found: Sequence[tuple[SelectedModel, Prepared, Memorised]]) -> dict[str, Any]:
    """For programs: {"n", "max_new_tokens", "temperature", "seed" of the samples, "shortest" of the stretches,
    "runs": [{"run", "checkpoint", "step", "searched": {"prepared", "bytes", "documents"},
              "samples": {"characters", "verbatim", "share", "stretches"}, "validation": {...}}]}.
    """
    from gptlite.data.verbatim import SHORTEST
    from gptlite.inference.memorization import N_SAMPLES, SAMPLE_TOKENS, SEED, TEMPERATURE

    def described(copied: Copied) -> dict[str, Any]:
        return {
            "characters": copied.characters,
            "verbatim": copied.verbatim,
            "share": copied.share,
            "stretches": list(copied.stretches),
        }

    return {
        "n": N_SAMPLES,
        "max_new_tokens": SAMPLE_TOKENS,
        "temperature": TEMPERATURE,
        "seed": SEED,
        "shortest": SHORTEST,
        "runs": [
            {
                "run": run.name,
                "checkpoint": str(run.checkpoint.path),
                "step": run.checkpoint.step,
                "searched": {
                    "prepared": str(prepared.path),
                    "bytes": prepared.manifest.train.bytes,
                    "documents": prepared.manifest.train.documents,
                },
                "samples": described(result.samples),
                "validation": described(result.validation),
            }
            for run, prepared, result in found
        ],
    }
