"""What runs are judged by: their validation text, or files."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from gptlite.cli.eval.models import SelectedModel
from gptlite.errors import DataError, Problem, RunError, gathered

if TYPE_CHECKING:
    from gptlite.data.baselines import Baselines
    from gptlite.data.prepared import Prepared
    from gptlite.data.tokens import Tokens
    from gptlite.inference.language_model import LanguageModel


_INSIDE = bytes(range(0x80, 0xC0))  # bytes of UTF-8 that begin no character


@dataclass(frozen=True)
class Text:
    """A text that every run is judged by, the same bytes for all.

    content: of a file. prepared: of validation text, by run; its ids are ready.
    """

    name: str
    bytes: int
    characters: int
    reference: Baselines
    content: str
    prepared: Mapping[str, Prepared]

    def tokens(self, run: SelectedModel, model: LanguageModel) -> Tokens:
        """Its ids for one of the runs. DataError, RunError where its tokenizer cannot give them."""
        if run.label not in self.prepared:
            if model.info.normalize == "nfc" and not unicodedata.is_normalized("NFC", self.content):
                raise DataError(
                    f"text: data.normalize = {run.cfg.data.normalize}: the model reads every text as nfc; leave it so"
                )
            return model.tokens_to_score(self.content)
        prepared = self.prepared[run.label]
        theirs, ours = prepared.manifest.tokenizer.fingerprint, model.tokenizer.fingerprint
        if theirs != ours:
            raise RunError(
                f"{prepared.path}: tokenizer = {theirs[:12]}: the checkpoint has {ours[:12]}; use its own data"
            )
        return prepared.split("val")


def texts_of(files: Sequence[str] | None, runs: Sequence[SelectedModel]) -> list[Text]:
    """The files, or where none is given the validation text of the runs."""
    return texts_of_files(files, runs) if files else [validation_text(runs)]


def texts_of_files(files: Sequence[str], runs: Sequence[SelectedModel]) -> list[Text]:
    """Files, in the encoding and normal form of the runs' data. DataError with every problem."""
    from gptlite.data.baselines import BaselineMeter

    twice = [file for file in dict.fromkeys(files) if files.count(file) > 1]
    problems = [Problem("this file is given twice; leave one out", f"--file {file}") for file in twice]
    texts = []
    for file in files:
        with gathered(problems):
            content = read_file(file, runs)
            meter = BaselineMeter()
            meter.feed(raw := content.encode())
            texts.append(Text(file, len(raw), len(content), meter.finish(), content, {}))
    if problems:
        raise DataError(problems)
    return texts


def read_file(file: str, runs: Sequence[SelectedModel]) -> str:
    """The text of a file. DataError if it is none, or not the same to all runs."""
    from gptlite.data.sources import open_source

    if Path(file).is_dir():
        raise DataError(f"--file = {file}: a text file, and this is a folder; name a file in it")
    if not Path(file).exists():
        raise DataError(f"--file = {file}: no such file; check the path")
    read: dict[tuple[str, str], str] = {}
    for run in runs:
        way = run.cfg.data.encoding, run.cfg.data.normalize
        if way not in read:
            (document,) = open_source(str(Path(file).absolute()), *way).documents()
            read[way] = document.text
    content, *others = dict.fromkeys(read.values())
    if others:
        ways = " and ".join(" ".join(way) for way in read)
        raise DataError(
            f"--file = {file}: not the same text to all runs, which read it as {ways}; give --set data.encoding=... "
            "and --set data.normalize=... for all, or score them one by one"
        )
    return content


def validation_text(runs: Sequence[SelectedModel]) -> Text:
    """The validation text that the runs share. RunError with every problem where it is not whole, or not the same."""
    from gptlite.data.baselines import ByteMeter

    problems: list[Problem] = []
    prepared: dict[str, Prepared] = {}
    for run in runs:
        with gathered(problems):
            prepared[run.label] = prepared_of(run)
    if problems:
        raise RunError(problems)
    first = prepared[runs[0].label]
    for label, other in prepared.items():
        if other.manifest.fingerprint != first.manifest.fingerprint and digest(other) != digest(first):
            raise RunError(
                f"validation text = not the same in {runs[0].label} ({first.path}) and {label} ({other.path}): "
                "runs are compared on the same bytes; give them a text with --file"
            )
    meter, characters = ByteMeter(), 0
    for piece in validation_bytes(first):
        meter.feed(piece)
        characters += len(piece.translate(None, delete=_INSIDE))
    lines = first.manifest.baselines
    if lines.bigram is None:
        lines = replace(lines, bigram=round(meter.bigram(), 4))
    name = f"validation text of {', '.join(dict.fromkeys(run.name for run in runs))}"
    return Text(name, first.manifest.val.bytes, characters, lines, "", prepared)


def validation_bytes(prepared: Prepared) -> Iterator[bytes]:
    """The validation text, piece by piece."""
    from gptlite.data.tokens import detokenize

    return detokenize(prepared.split("val"), prepared.tokenizer())


def digest(prepared: Prepared) -> str:
    """Hex sha256 of the validation text."""
    sha256 = hashlib.sha256()
    for piece in validation_bytes(prepared):
        sha256.update(piece)
    return sha256.hexdigest()


def prepared_of(chosen: SelectedModel, instead: str = "; score a text with --file") -> Prepared:
    """The prepared text of the run that a checkpoint lies in, whole. RunError if it is in none, or its text is gone."""
    from gptlite.runs.find import run_of
    from gptlite.training.launch import find_text

    run = run_of(chosen.checkpoint)
    if run is None:
        raise RunError(f"{chosen.checkpoint.path}: validation text = unknown: the folder is not in a run{instead}")
    prepared = find_text(run, chosen.cfg)
    if prepared is None:
        raise RunError(
            f"{run.path}: prepared text = {run.recorded('prepared', str)}: gone; say where it is now with "
            f"--set data.dir=FOLDER{instead}"
        )
    prepared.verify()
    return prepared
