"""The models that the command line selects: all are opened, then all loaded, before the first is used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gptlite.cli.options import open_each
from gptlite.errors import DataError, Problem, RunError, gathered, located
from gptlite.formatting import Say

if TYPE_CHECKING:
    from gptlite.cli.eval.eval_texts import Text
    from gptlite.config.loading import Override
    from gptlite.config.schema import RunConfig
    from gptlite.data.dataset.tokens import Tokens
    from gptlite.inference.language_model import LanguageModel
    from gptlite.runs.checkpoint import Checkpoint


@dataclass(frozen=True)
class SelectedModel:
    """A checkpoint and the config of its run, changed by --set. `label` is unique among the selected.

    context: the value of --context.
    """

    name: str
    label: str
    checkpoint: Checkpoint
    cfg: RunConfig
    context: int | None

    def to_json(self) -> dict[str, Any]:
        """The entries of --json that name the checkpoint."""
        return {"run": self.name, "checkpoint": str(self.checkpoint.path), "step": self.checkpoint.step}


def select_models(
    names: Sequence[str], which: str | None, sets: Sequence[str], context: int | None, say: Say
) -> list[SelectedModel]:
    """Open a checkpoint of each run, or of the newest if none is named. RunError with every problem.

    which, context: the values of --checkpoint and --context. sets: those of --set.
    """
    from gptlite.runs.find import choose_checkpoint, load_checkpoint_config, run_name
    from gptlite.runs.run import runs_folder

    def choose(name: str) -> Checkpoint:
        if name and Path(name).is_file():
            sentence = "this is a file, not a run or its folder. To score a text, put --file before it."
            raise RunError(sentence, where=name)
        return choose_checkpoint(runs_folder(), name, which, say)

    found = open_each(names or ["latest"], choose)
    with located("--set"):
        cfgs = [load_checkpoint_config(each, [*normalization_of_copy(each), *sets]) for each in found]
    run_names = [run_name(each) for each in found]
    labels = [f"{name} {each.step}" for name, each in zip(run_names, found, strict=True)]
    times = Counter(labels)
    return [
        SelectedModel(name, label if times[label] == 1 else str(each.path), each, cfg, context)
        for name, label, each, cfg in zip(run_names, labels, found, cfgs, strict=True)
    ]


def normalization_of_copy(checkpoint: Checkpoint) -> list[Override]:
    """Return data.normalize as a copied checkpoint folder records it, which has no run around it."""
    from gptlite.config.loading import Override
    from gptlite.runs.find import find_run

    if find_run(checkpoint) is not None:
        return []
    match checkpoint.read_json("config.json").get("gptlite"):
        case {"normalize": ("none" | "nfc") as normalize}:  # loading says what is wrong with anything else
            return [Override("saved", "data.normalize", normalize)]
    return []


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
        prefix = f"{run.label}: " if len(selected) > 1 else ""
        with located(f"{prefix}--context", at="context"):
            model = load_checkpoint(run.checkpoint, run.cfg.run, context=run.context)
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
