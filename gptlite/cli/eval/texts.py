"""The texts that models are scored on, their validation text or files, and the ids of these for each model."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gptlite.cli.eval.models import SelectedModel
from gptlite.cli.terminal import check_text_file
from gptlite.errors import DataError, Problem, RunError, gathered, located

if TYPE_CHECKING:
    from gptlite.data.dataset.manifest import Baselines
    from gptlite.data.dataset.prepared import Prepared
    from gptlite.data.dataset.tokens import Tokens
    from gptlite.inference.language_model import LanguageModel


CONTINUATION_BYTES = bytes(range(0x80, 0xC0))  # of UTF-8: each follows the first byte of a character


@dataclass(frozen=True)
class Text:
    """A text that every model is scored on, the same bytes for all.

    content: of a file. prepared: of validation text, the data set by run label; its ids are stored there.
    """

    name: str
    bytes: int
    characters: int
    baselines: Baselines
    content: str
    prepared: Mapping[str, Prepared]

    def tokens(self, run: SelectedModel, model: LanguageModel) -> Tokens:
        """Return the ids of the text for a run's model. DataError or RunError if its tokenizer cannot encode it."""
        if run.label not in self.prepared:
            if model.info.normalize == "nfc" and not unicodedata.is_normalized("NFC", self.content):
                raise DataError(
                    f"data.normalize is {run.cfg.data.normalize}, but this model reads every text as nfc. "
                    "Leave data.normalize as it is."
                )
            return model.tokens_to_score(self.content)
        prepared = self.prepared[run.label]
        theirs, ours = prepared.manifest.tokenizer.fingerprint, model.tokenizer.fingerprint
        if theirs != ours:
            raise RunError(
                f"this text was prepared with tokenizer {theirs[:12]}, and the checkpoint has {ours[:12]}. "
                "Use the data set that the run was trained on.",
                where=str(prepared.path),
            )
        return prepared.split("val")


def find_texts(files: Sequence[str] | None, runs: Sequence[SelectedModel]) -> list[Text]:
    """Return the files as texts, or the validation text of the runs if there are none. DataError with every problem."""
    if not files:
        return [validation_text(runs)]
    twice = [file for file in dict.fromkeys(files) if files.count(file) > 1]
    problems = [Problem("this file is given twice. Leave one out.", f"--file {file}") for file in twice]
    texts = []
    for file in files:
        with gathered(problems), located(f"--file {file}"):
            texts.append(read_file(file, runs))
    if problems:
        raise DataError(problems)
    return texts


def read_file(file: str, runs: Sequence[SelectedModel]) -> Text:
    """Read a text in the encoding and normal form of the runs' data.

    DataError if it is none, or if the runs make different texts of it.
    """
    from gptlite.data.preparing.baselines import BaselineMeter
    from gptlite.data.sources.documents import Reading, holds_records
    from gptlite.data.sources.sources import open_source

    check_text_file(file, f"--file {file}")
    if holds_records(Path(file)):
        raise DataError("this file holds records, and --file scores plain text. Write the text to a .txt file.")
    read: dict[tuple[str, str], str] = {}
    for how in dict.fromkeys((run.cfg.data.encoding, run.cfg.data.normalize) for run in runs):
        reading = Reading(encoding=how[0], normalize=how[1], documents="files")
        (document,) = open_source(str(Path(file).absolute()), reading).documents()
        read[how] = document.text
    content, *others = dict.fromkeys(read.values())
    if others:
        readings = " and ".join(" ".join(how) for how in read)
        raise DataError(
            f"the runs read this file as {readings}, which gives different texts. Give all of them the same with "
            "--set data.encoding=... and --set data.normalize=..., or score them one by one."
        )
    meter = BaselineMeter()
    meter.feed(raw := content.encode())
    return Text(file, len(raw), len(content), meter.finish(), content, {})


def validation_text(runs: Sequence[SelectedModel]) -> Text:
    """Return the validation text that the runs share. RunError with every problem if it is damaged or not the same."""
    prepared = find_prepared(runs, " Or score a text with --file.")
    distinct = {data.manifest.fingerprint: data for data in prepared.values()}
    contents = {fingerprint: read_validation(data) for fingerprint, data in distinct.items()}
    first = prepared[runs[0].label]
    digest, characters = contents[first.manifest.fingerprint]
    for label, other in prepared.items():
        if contents[other.manifest.fingerprint][0] != digest:
            raise RunError(
                f"{runs[0].label} and {label} have different validation texts ({first.path} and {other.path}). "
                "Compare them on the same text with --file."
            )
    name = f"validation text of {', '.join(dict.fromkeys(run.name for run in runs))}"
    return Text(name, first.manifest.val.bytes, characters, first.manifest.baselines, "", prepared)


def read_validation(prepared: Prepared) -> tuple[str, int]:
    """Return the sha256 of the validation text in hexadecimal, and its number of characters."""
    from gptlite.data.dataset.tokens import detokenize

    sha256, characters = hashlib.sha256(), 0
    for piece in detokenize(prepared.split("val"), prepared.tokenizer()):
        sha256.update(piece)
        characters += len(piece.translate(None, delete=CONTINUATION_BYTES))
    return sha256.hexdigest(), characters


def find_prepared(models: Sequence[SelectedModel], alternative: str = "") -> dict[str, Prepared]:
    """Return by label the verified data sets that the models were trained on. RunError with every problem.

    alternative: advice to add to the errors.
    """
    from gptlite.runs.find import find_run
    from gptlite.runs.find_text import find_text

    problems: list[Problem] = []
    found: dict[str, Prepared] = {}
    for model in models:
        with gathered(problems):
            run = find_run(model.checkpoint)
            if run is None:
                sentence = "this checkpoint is not inside a run, so its text is unknown. Name the run's folder."
                raise RunError(sentence + alternative, where=str(model.checkpoint.path))
            prepared = find_text(run, model.cfg)
            if prepared is None:
                raise RunError(
                    f"the prepared text {run.info['prepared']} is missing. If it was moved, add "
                    f"--set data.dir=FOLDER.{alternative}",
                    where=str(run.path),
                )
            prepared.verify()
            found[model.label] = prepared
    if problems:
        raise RunError(problems)
    return found


@dataclass(frozen=True)
class Evaluator:
    """A loaded model, and the ids of each text."""

    run: SelectedModel
    model: LanguageModel
    ids: Sequence[Tokens]

    @property
    def batch_size(self) -> int:
        return self.run.cfg.eval.batch_size

    def settings(self) -> AbstractContextManager[None]:
        """Return the context in which the model computes."""
        from gptlite.compute.device import settings

        return settings(self.model.compute, deterministic=self.run.cfg.run.deterministic)


def load_evaluators(
    selected: Sequence[SelectedModel], texts: Sequence[Text], stride: int | None = None, *, needs_mask: bool = True
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
    for evaluator in evaluators if needs_mask else ():
        with located(evaluator.run.label):
            evaluator.model.require_mask()
    return evaluators
