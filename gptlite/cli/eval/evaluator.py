"""Models ready to score texts: all are loaded and all texts encoded before the first is scored."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gptlite.cli.eval.eval_texts import Text
from gptlite.cli.eval.models import SelectedModel
from gptlite.errors import DataError, Problem, gathered, located

if TYPE_CHECKING:
    from gptlite.data.tokens import Tokens
    from gptlite.inference.language_model import LanguageModel


@dataclass(frozen=True)
class Evaluator:
    """A loaded model, and the ids of each text."""

    run: SelectedModel
    model: LanguageModel
    ids: Sequence[Tokens]

    def settings(self) -> AbstractContextManager[None]:
        """Return the context in which the model computes."""
        from gptlite.compute.device import settings

        return settings(self.model.compute, deterministic=self.run.cfg.run.deterministic)


def load_evaluators(
    selected: Sequence[SelectedModel], texts: Sequence[Text], stride: int | None = None
) -> list[Evaluator]:
    """Load the models and encode the texts for each. DataError with every problem."""
    # Importing torch takes a second, so the command line is checked first.
    from gptlite.inference.load import load_checkpoint

    problems: list[Problem] = []
    evaluators = []
    for run in selected:
        model = load_checkpoint(run.checkpoint, run.cfg.run)
        prefix = f"{run.label}: " if len(selected) > 1 else ""
        ids = []
        for text in texts:
            with gathered(problems), located(prefix + text.name), located(f"{prefix}--stride", at="stride"):
                tokens = text.tokens(run, model)
                model.windows(tokens, stride)
                ids.append(tokens)
        evaluators.append(Evaluator(run, model, ids))
    if problems:
        raise DataError(list(dict.fromkeys(problems)))
    return evaluators
