"""Folders that an older version prepared: they are read, checked whole, and sealed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gptlite.config.schema import DataSection, TokenizerSection
from gptlite.data.dataset.prepared import Prepared
from gptlite.data.preparing.prepare import prepare
from gptlite.errors import DataError, StorageError
from gptlite.storage import files

CHAR = TokenizerSection(kind="char")


@pytest.fixture
def data(tmp_path: Path) -> DataSection:
    (tmp_path / "book.txt").write_text("0123456789" * 20)
    return DataSection(source=str(tmp_path / "book.txt"), dir=str(tmp_path / "prepared"))


@pytest.fixture
def old(data: DataSection) -> Path:
    """A folder as version 1 wrote it: the manifest has no seal and does not list the files of the tokenizer."""
    folder = prepare(data, CHAR).path
    fields = json.loads((folder / "manifest.json").read_text()) | {"format_version": 1}
    del fields["sha256"], fields["tokenizer"]["files"]
    (folder / "manifest.json").write_text(json.dumps(fields, indent=1))
    return folder


def test_a_new_folder_is_sealed_and_an_old_one_is_opened_in_silence(data: DataSection, old: Path) -> None:
    before = (old / "manifest.json").read_bytes()
    opened = Prepared(old)
    opened.verify()
    assert not opened.sealed
    assert (old / "manifest.json").read_bytes() == before
    assert prepare(data, CHAR).sealed


def test_preparing_seals_an_old_folder_with_one_line_of_warning(data: DataSection, old: Path) -> None:
    lines: list[str] = []
    sealed = prepare(data, CHAR, lines.append)
    assert lines == [f"warning: {old} had no seal against changes; all of it was checked, and it has one now"]
    assert (sealed.path, sealed.sealed, sealed.manifest.format_version) == (old, True, 2)
    assert set(sealed.manifest.tokenizer.files or {}) == {path.name for path in (old / "tokenizer").iterdir()}
    assert json.loads((old / "manifest.json").read_text())["sha256"]
    assert prepare(data, CHAR, lines.append).manifest == sealed.manifest
    assert len(lines) == 1


def test_an_old_folder_with_damage_is_refused_and_not_sealed(data: DataSection, old: Path) -> None:
    before = (old / "manifest.json").read_bytes()
    ids = bytearray((old / "val-00000.bin").read_bytes())
    ids[-1] ^= 1
    (old / "val-00000.bin").write_bytes(ids)
    with pytest.raises(DataError, match=r"val-00000\.bin: the prepared data is damaged: its sha256 is "):
        prepare(data, CHAR)
    assert (old / "manifest.json").read_bytes() == before


@pytest.mark.parametrize("n_files", [2, 60])
@pytest.mark.parametrize("tokenizer", [CHAR, TokenizerSection(kind="bpe", vocab_size=300)])
def test_old_folders_of_several_documents_are_sealed(tmp_path: Path, n_files: int, tokenizer: TokenizerSection) -> None:
    (tmp_path / "texts").mkdir()
    for i in range(n_files):
        (tmp_path / f"texts/{i}.txt").write_text(f"Poem number {i}\nna\u00efve \u4e16\u754c {'la ' * (i % 7)}\n")
    data = DataSection(source=str(tmp_path / "texts"), dir=str(tmp_path / "prepared"))
    made = prepare(data, tokenizer)
    fields = json.loads((made.path / "manifest.json").read_text()) | {"format_version": 1}
    del fields["sha256"], fields["tokenizer"]["files"]
    (made.path / "manifest.json").write_text(json.dumps(fields))
    assert prepare(data, tokenizer).manifest == made.manifest


def test_an_old_folder_that_cannot_be_written_to_is_used_with_a_warning(
    data: DataSection, old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, content: bytes) -> Any:
        raise StorageError("cannot replace: Read-only file system.", str(path))

    before = (old / "manifest.json").read_bytes()
    monkeypatch.setattr(files, "replace", refuse)
    lines: list[str] = []
    assert prepare(data, CHAR, lines.append).path == old
    assert lines == [
        f"warning: {old} had no seal against changes; all of it was checked, and it could not get one: "
        f"{old}/manifest.json: cannot replace: Read-only file system."
    ]
    assert (old / "manifest.json").read_bytes() == before


def test_what_a_kill_leaves_of_a_sealing_is_removed_by_the_next(data: DataSection, old: Path) -> None:
    (old / "manifest.json.tmp-1-00000000").write_text("half")
    prepare(data, CHAR)
    assert [path.name for path in old.glob("*.tmp-*")] == []
