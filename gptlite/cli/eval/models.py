"""The models that the command line selects: all are opened before the first is loaded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gptlite.cli.options import open_each
from gptlite.errors import RunError, located
from gptlite.formatting import Say

if TYPE_CHECKING:
    from gptlite.config.schema import RunConfig
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
        """Return the entries of --json that name the checkpoint."""
        return {
            "label": self.label,
            "run": self.name,
            "checkpoint": str(self.checkpoint.path),
            "step": self.checkpoint.step,
        }


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

    selected = []
    for checkpoint in open_each(names or ["latest"], choose):
        with located("--set"):
            cfg = load_checkpoint_config(checkpoint, sets)
        name = run_name(checkpoint)
        selected.append(SelectedModel(name, f"{name} {checkpoint.step}", checkpoint, cfg, context))
    times = Counter(model.label for model in selected)
    return [
        model if times[model.label] == 1 else replace(model, label=str(model.checkpoint.path)) for model in selected
    ]
