"""`gptlite prepare`: tokenize a text into a prepared data set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gptlite.cli.options import ConfigOption, DataOption, SetOption, located_text, read_config
from gptlite.cli.terminal import Console, emit
from gptlite.formatting import counted

if TYPE_CHECKING:
    from gptlite.data.manifest import Manifest
    from gptlite.data.split import RuleName


SPLIT_RULES: dict[RuleName, str] = {
    "document_hash": "validation is whole documents, chosen by their content",
    "tail_of_each_document": "validation is the end of each document",
    "tail_of_the_document": "validation is the end of the document",
}


def prepare(
    config: ConfigOption = None,
    set_: SetOption = None,
    data: DataOption = None,
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", help="First part of the folder's name. Default: the name of the text."),
    ] = None,
) -> None:
    """Tokenize a text and show what training would read. `gptlite train` does it by itself if needed."""
    from gptlite.data.prepare import prepare as prepare_text

    cfg, path = read_config(config, set_, data)
    console = Console()
    console.say(f"config: {path}")
    with located_text(data):
        prepared = prepare_text(cfg.data, cfg.tokenizer, console.say, name=name)
    for line in (*summarize(prepared.manifest), f"folder          {prepared.path}"):
        emit(f"{line}\n")


def summarize(manifest: Manifest) -> list[str]:
    """Sources, tokenizer, split sizes and baselines of a prepared data set, one line each."""
    names = ", ".join(source.name for source in manifest.sources)
    lines = [
        f"text            {names}: {sum(source.bytes for source in manifest.sources):,} bytes",
        f"tokenizer       {manifest.tokenizer.kind}, {manifest.tokenizer.vocab_size:,} ids",
    ]
    for name, split in (("training", manifest.train), ("validation", manifest.val)):
        per_token = split.bytes / split.tokens
        lines.append(
            f"{name:<15} {counted(split.tokens, 'token')}, {split.bytes:,} bytes ({per_token:.2f} per token), "
            f"{counted(split.documents, 'document')}"
        )
    baselines = manifest.baselines
    compressors = f"xz -9 {baselines.xz:.3f}, gzip -9 {baselines.gzip:.3f}, " if manifest.compressors_meaningful else ""
    lines += [
        f"split           {SPLIT_RULES[manifest.split_rule.rule]}",
        f"bits per byte   of the validation text: {compressors}byte frequencies {baselines.unigram:.3f}",
    ]
    return lines
