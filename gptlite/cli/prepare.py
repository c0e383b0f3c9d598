"""`gptlite prepare`: tokenize a text into a prepared data set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gptlite.cli.options import (
    ConfigOption,
    DataOption,
    OfflineOption,
    SetOption,
    build_overrides,
    find_config_file,
    located_text,
)
from gptlite.cli.terminal import Console, emit, on_one_line
from gptlite.errors import ConfigError, DataError, located
from gptlite.formatting import counted, size

if TYPE_CHECKING:
    from gptlite.config.schema import RunConfig
    from gptlite.data.dataset.manifest import Manifest, RuleName

SPLIT_RULES: dict[RuleName, str] = {
    "document_hash": "validation is whole documents, chosen by their content",
    "tail_of_each_document": "validation is the end of each document",
    "tail_of_the_document": "validation is the end of the document",
    "val_source": "validation is the text of data.val_source",
}


def list_named_texts(asked: bool) -> None:
    """With --list, print each named data set with its size, its licence and where it is, and end the command."""
    if not asked:
        return
    from gptlite.data.sources.named_datasets import cards
    from gptlite.data.sources.sources import DOWNLOADS, PYTHON_STDLIB

    emit(f"{PYTHON_STDLIB:<16}  the source code of Python's standard library, which is on this disk\n")
    for card in cards():
        path = card.file_in(DOWNLOADS)
        where = f"in {path}" if path.exists() else "downloaded when it is first used"
        reading = "".join(f", {key}: {on_one_line(value)}" for key, value in card.reading.items())
        emit(f"{card.name:<16}  {card.about} ({size(card.n_bytes)}, {card.licence}{reading}), {where}\n")
    raise typer.Exit


def prepare(
    config: ConfigOption = None,
    set_: SetOption = None,
    data: DataOption = None,
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", help="First part of the folder's name. Default: the name of the text."),
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read every byte of the prepared folder, and say which files are damaged.")
    ] = False,
    list_: Annotated[
        bool,
        typer.Option(
            "--list",
            callback=list_named_texts,
            is_eager=True,
            help="List the named data sets, and whether their texts are on this disk.",
        ),
    ] = False,
    offline: OfflineOption = False,
) -> None:
    """Tokenize a text and show what training would read. `gptlite train` does it by itself if needed."""
    if verify and name is not None:
        raise ConfigError("--verify finds the folder by its text, whatever its name. Leave out one of them.", "--name")
    from gptlite.config.loading import load_config
    from gptlite.data.preparing.prepare import prepare as prepare_text
    from gptlite.runs.find import with_tokenizer

    path, console = find_config_file(config), Console()
    with located("--set"):
        cfg = load_config(path, build_overrides(set_, data))
    console.say(f"config: {path}")
    cfg = with_tokenizer(cfg, console.say)
    with located_text(data):
        if verify:
            show_check(cfg)
            return
        prepared = prepare_text(cfg.data, cfg.tokenizer, console.say, name=name)
    for line in (*summarize(prepared.manifest), f"folder          {prepared.path}"):
        emit(f"{line}\n")


def show_check(cfg: RunConfig) -> None:
    """Print the state of each file of a prepared data set. DataError if one is damaged or there is no such data set."""
    from gptlite.data.preparing.fingerprint import check_prepared

    folder, checks = check_prepared(cfg.data, cfg.tokenizer)
    emit(f"{folder}\n")
    damaged = []
    for path, problem in checks:
        name = str(path.relative_to(folder))
        # What to do comes at the end, once for all files.
        emit(f"{name:<36}  {'ok' if problem is None else on_one_line(problem.partition('. ')[0])}\n")
        damaged += [name] if problem is not None else []
    if damaged:
        files = counted(len(damaged), "damaged file")
        advice = "Restore what is damaged, or remove the folder and prepare the text again."
        raise DataError(f"{files}: {', '.join(damaged)}. {advice}", str(folder))


def summarize(manifest: Manifest) -> list[str]:
    """Return the figures of a prepared data set and what is worth knowing before training on it, one line each."""
    report, baselines, ids = manifest.report, manifest.baselines, manifest.tokenizer.vocab_size
    sources = manifest.sources
    splits = [
        f"{counted(split.tokens, 'token')}, {split.bytes:,} bytes ({split.bytes / split.tokens:.2f} per token), "
        f"{counted(split.documents, 'document')}"
        for split in (manifest.train, manifest.val)
    ]
    compressors = (
        f"PPMd {baselines.ppmd:.3f}, xz -9 {baselines.xz:.3f}, gzip -9 {baselines.gzip:.3f}, "
        if manifest.compressors_meaningful
        else ""
    )
    longest = (f"{on_one_line(place)} ({n_bytes:,} bytes)" for place, n_bytes in report.longest)
    rows = {
        "text": f"{', '.join(source.name for source in sources)}: {sum(source.bytes for source in sources):,} bytes",
        "tokenizer": f"{manifest.tokenizer.kind}, {ids:,} ids",
        "training": splits[0],
        "validation": splits[1],
        "split": SPLIT_RULES[manifest.split_rule.rule],
        "bits per byte": f"of the validation text: {compressors}byte frequencies {baselines.unigram:.3f}",
        "longest": ", ".join(longest) if manifest.train.documents > 1 else "",
        "vocabulary": f"{report.used_ids:,} of {ids - 1:,} ids are in the training text",
        "best merges": ", ".join(report.merges),
    }
    if report.n_val_only:
        characters, others = counted(report.n_val_only, "character"), report.n_val_only - len(report.val_only)
        more = f" and {others:,} more" if others else ""
        rows["unseen"] = f"{characters} only in the validation text: {on_one_line(report.val_only)}{more}"
    if report.withheld:
        rows["skipped"] = f"{counted(report.withheld, 'training document')} that the validation text has, too"
    if report.forced_cuts:
        cuts = counted(report.forced_cuts, "piece")
        rows["cuts"] = f"{cuts} of a million characters had to be cut: no blank or line end"
    return [f"{name:<15} {text}" for name, text in rows.items() if text]
