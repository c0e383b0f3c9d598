"""Prepared folders whose seals fit, but that no gptlite wrote; files that are links, pipes or cut."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gptlite.config.schema import DataSection, TokenizerSection
from gptlite.data.dataset.prepared import Prepared
from gptlite.data.preparing.prepare import prepare
from gptlite.errors import Damaged
from gptlite.storage.sealed import MANIFEST
from gptlite.storage.sealed_json import dump_sealed

Change = Callable[[dict[str, Any]], object]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "book.txt").write_text("0123456789" * 20)
    data = DataSection(source=str(tmp_path / "book.txt"), dir=str(tmp_path / "prepared"))
    return prepare(data, TokenizerSection(kind="char")).path


def edit(folder: Path, change: Change) -> None:
    """Change the fields of a manifest and seal it again."""
    path = folder / MANIFEST
    fields = json.loads(path.read_text())
    change(fields)
    path.write_bytes(dump_sealed({key: value for key, value in fields.items() if key != "sha256"}))


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (lambda fields: fields.update(start_id=-1), "start_id"),
        (lambda fields: fields.update(start_id=11), "start_id is 11, and the vocabulary has 11 ids"),
        (lambda fields: fields.update(start_id=True), "start_id"),
        (lambda fields: fields.update(fingerprint="z" * 64), "fingerprint"),
        (lambda fields: fields["tokenizer"].update(vocab_size=0), "tokenizer.vocab_size"),
        (lambda fields: fields["tokenizer"].update(vocab_size="11"), "tokenizer.vocab_size"),
        (lambda fields: fields["files"].update({"../x": {"size": 1, "sha256": "0" * 64}}), "size and sha256 of each"),
        (lambda fields: fields["train"].update(tokens=181), "train.tokens is 181, and its files have 180"),
        (lambda fields: fields["train"].update(tokens=1 << 70), "train.tokens"),
        (lambda fields: fields["files"].pop("val-00000.bin"), "val.tokens is 20, and its files have 0"),
        (lambda fields: fields["val"].update(bytes=0), "val.bytes"),
        (lambda fields: fields.update(sources=fields["sources"] + ["x"]), "sources.1"),
        (lambda fields: fields.update(baselines=[]), "baselines"),
        (lambda fields: fields.update(more=1), "more"),
        (lambda fields: fields.pop("split_rule"), "split_rule"),
    ],
)
def test_an_odd_manifest_names_the_key_in_one_line(folder: Path, change: Change, key: str) -> None:
    edit(folder, change)
    with pytest.raises(Damaged, match=rf"^[^\n]*MANIFEST\.json: [^\n]*({key})[^\n]*prepare the text again\.$"):
        Prepared(folder)


@pytest.mark.parametrize("name", [MANIFEST, "train-00000.bin", "tokenizer/tokenizer.json"])
@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_links_pipes_and_folders_are_refused_without_waiting(folder: Path, name: str, kind: str) -> None:
    path = folder / name
    moved = path.rename(folder / "moved")
    if kind == "link":
        path.symlink_to(moved)
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    with pytest.raises(Damaged, match=rf"^[^\n]*{name}: [^\n]*cannot [^\n]*$"):
        Prepared(folder)


def test_a_shard_that_is_cut_while_it_is_in_use_is_named(folder: Path) -> None:
    split = Prepared(folder).split("train")
    os.truncate(folder / "train-00000.bin", 64)
    with pytest.raises(Damaged, match=r"train-00000\.bin: the file was cut while it was in use\. "):
        split.read(0, 10)
