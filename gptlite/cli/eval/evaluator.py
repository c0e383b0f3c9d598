"""Models that read texts: all of them loaded, and every text in the ids of each, before the first is scored."""

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
    """A run's model, and the ids of each text."""

    run: SelectedModel
    model: LanguageModel
    ids: Sequence[Tokens]

    def settings(self) -> AbstractContextManager[None]:
        """In which its model computes."""
        from gptlite.compute.device import settings

        return settings(self.model.compute, deterministic=self.run.cfg.run.deterministic)


def load_evaluators(runs: Sequence[SelectedModel], texts: Sequence[Text], stride: int | None = None) -> list[Evaluator]:
    """Runs ready to score texts. DataError with every problem, where one cannot be scored so."""
    # torch: not before the command line has been checked.
    from gptlite.inference.load import load_checkpoint

    problems: list[Problem] = []
    ready = []
    for run in runs:
        model = load_checkpoint(run.checkpoint, run.cfg.run)
        where = f"{run.label}: " if len(runs) > 1 else ""
        ids = []
        for text in texts:
            with gathered(problems), located(where + text.name), located(f"{where}--stride", at="stride"):
                tokens = text.tokens(run, model)
                model.windows(tokens, stride)
                ids.append(tokens)
        ready.append(Evaluator(run, model, ids))
    if problems:
        raise DataError(list(dict.fromkeys(problems)))
    return ready
