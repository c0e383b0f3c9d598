"""What is scored: the models and texts that the command line selects, all opened before the first model is loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gptlite.cli.options import open_each
from gptlite.cli.terminal import check_text_file
from gptlite.config.loading import Override
from gptlite.config.schema import DataSection, RunConfig
from gptlite.data.dataset.manifest import Baselines
from gptlite.data.dataset.prepared import Prepared
from gptlite.data.dataset.tokens import Tokens, detokenize
from gptlite.data.preparing.baselines import BaselineMeter
from gptlite.data.sources.documents import holds_records
from gptlite.data.sources.sources import open_source
from gptlite.errors import DataError, RunError, located
from gptlite.formatting import Say
from gptlite.runs.checkpoint import Checkpoint
from gptlite.runs.find import choose_checkpoint, find_run, find_text, load_checkpoint_config, source_name
from gptlite.runs.run import runs_folder

if TYPE_CHECKING:
    from gptlite.inference.language_model import LanguageModel


@dataclass(frozen=True)
class SelectedModel:
    """A checkpoint and the config of its run, changed by --set."""

    name: str
    label: str  # unique among the selected
    checkpoint: Checkpoint
    cfg: RunConfig
    context: int | None  # the value of --context

    def to_json(self) -> dict[str, Any]:
        """Return the entries of --json that name the checkpoint."""
        path, step = str(self.checkpoint.path), self.checkpoint.step
        return {"label": self.label, "run": self.name, "checkpoint": path, "step": step}


def select_models(
    names: Sequence[str], which: str | None, sets: Sequence[str | Override], context: int | None, say: Say
) -> list[SelectedModel]:
    """Open a checkpoint of each run, or of the newest if none is named. Raises RunError.

    which, context: the values of --checkpoint and --context. sets: those of --set.
    """
    root = runs_folder()
    selected: dict[str, SelectedModel] = {}
    for checkpoint in open_each(names or ["latest"], lambda name: choose_checkpoint(root, name, which, say)):
        with located("--set"):
            cfg = load_checkpoint_config(checkpoint, sets)
        name = source_name(checkpoint.path)
        label = f"{name} {checkpoint.step}"
        label = str(checkpoint.path) if label in selected else label
        selected[label] = SelectedModel(name, label, checkpoint, cfg, context)
    return list(selected.values())


@dataclass(frozen=True)
class Text:
    """A text that every model is scored on, the same for all."""

    name: str
    content: str
    baselines: Baselines
    prepared: Mapping[str, Prepared]  # of validation text, by run label: the data sets, which hold its ids

    def tokens(self, run: SelectedModel, model: LanguageModel) -> Tokens:
        """Return the ids of the text for a run's model. DataError or RunError if its tokenizer cannot encode it."""
        if run.label not in self.prepared:
            return model.tokens_to_score(self.content)
        prepared = self.prepared[run.label]
        if prepared.manifest.tokenizer.fingerprint != model.tokenizer.fingerprint:
            raise RunError("this text was prepared with another tokenizer than the checkpoint's.", str(prepared.path))
        return prepared.split("val")


def find_texts(files: Sequence[str] | None, runs: Sequence[SelectedModel]) -> list[Text]:
    """Return the files as texts, or the validation text of the runs if there are none."""
    return [read_file(file, runs) for file in dict.fromkeys(files)] if files else [validation_text(runs)]


def read_file(file: str, runs: Sequence[SelectedModel]) -> Text:
    """Read a text in the encoding of the runs' data and in the normal form that their models read.

    DataError if it is none, or if the runs make different texts of it.
    """
    check_text_file(file, f"--file {file}")
    if holds_records(Path(file)):
        raise DataError("this file holds records. Write their text to a .txt file.", f"--file {file}")
    # Importing torch takes a second, so the file is checked first.
    from gptlite.inference.load import read_model_info

    contents: dict[str, str] = {}  # with the way in which it was read
    for run in runs:
        encoding, (_, _, normalize) = run.cfg.data.encoding, read_model_info(run.checkpoint)
        reading = DataSection.model_validate({"encoding": encoding, "normalize": normalize, "documents": "files"})
        (document,) = open_source(str(Path(file).absolute()), reading).documents()
        contents[document.text] = f"{encoding} {normalize}"
    if len(contents) > 1:
        raise DataError(
            f"the runs read this file as {' and '.join(contents.values())}, which gives different texts. "
            "Give all of them the same with --set data.encoding=..., or score them one by one.",
            f"--file {file}",
        )
    (content,) = contents
    meter = BaselineMeter()
    meter.feed(content.encode())
    return Text(file, content, meter.finish(), {})


def validation_text(runs: Sequence[SelectedModel]) -> Text:
    """Return the validation text that the runs share. RunError if it is damaged or not the same."""
    prepared = find_prepared(runs, " Or score a text with --file.")
    first, content = prepared[runs[0].label], b""
    for label, data in prepared.items():
        read = b"".join(detokenize(data.split("val"), data.tokenizer()))
        if read != (content := content or read):
            raise RunError(
                f"{runs[0].label} and {label} have different validation texts ({first.path} and {data.path}). "
                "Compare them on the same text with --file."
            )
    name = f"validation text of {', '.join(dict.fromkeys(run.name for run in runs))}"
    return Text(name, content.decode(), first.manifest.baselines, prepared)


def find_prepared(models: Sequence[SelectedModel], advice: str = "") -> dict[str, Prepared]:
    """Return by label the verified data sets that models were trained on. RunError, with advice, without one."""
    found: dict[str, Prepared] = {}
    for model in models:
        run = find_run(model.checkpoint)
        if run is None:
            sentence = "this checkpoint is not inside a run, so its text is unknown. Name the run's folder."
            raise RunError(sentence + advice, where=str(model.checkpoint.path))
        prepared = find_text(run, model.cfg)
        if prepared is None:
            sentence = f"the prepared text {run.info['prepared']} is missing. If it was moved, add --set data.dir="
            raise RunError(f"{sentence}FOLDER.{advice}", where=str(run.path))
        prepared.verify()
        found[model.label] = prepared
    return found


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
    selected: Sequence[SelectedModel], texts: Sequence[Text], stride: int | None = None, *, needs_mask: bool = True
) -> list[Evaluator]:
    """Load the models and encode the texts for each. Raises DataError."""
    from gptlite.inference.load import load_checkpoint

    evaluators = []
    for run in selected:
        prefix = f"{run.label}: " if len(selected) > 1 else ""
        with located(f"{prefix}--context", at="context"):
            model = load_checkpoint(run.checkpoint, run.cfg.run, context=run.context)
        if needs_mask:
            with located(run.label):
                model.require_mask()
        ids = []
        for text in texts:
            with located(prefix + text.name), located(f"{prefix}--stride", at="stride"):
                tokens = text.tokens(run, model)
                model.windows(tokens, stride)
                ids.append(tokens)
        evaluators.append(Evaluator(run, model, ids))
    return evaluators
