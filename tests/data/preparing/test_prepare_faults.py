from __future__ import annotations

import dataclasses
import os
import re
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from file_faults import Killed, stop_after

from gptlite.config.schema import DataSection, TokenizerSection
from gptlite.data.dataset.prepared import Prepared
from gptlite.data.preparing import fingerprint
from gptlite.data.preparing import prepare as module
from gptlite.data.preparing.corpus import scan
from gptlite.data.preparing.prepare import prepare
from gptlite.data.sources.sources import open_source
from gptlite.errors import DataError, StorageError
from gptlite.storage import files, locks

Section = Callable[..., DataSection]
Tree = Callable[[Path], dict[str, str]]
CHAR = TokenizerSection(kind="char")
POEMS = {f"poem {i}.txt": f"Poem number {i}\n{'la ' * (i % 7)}\n" for i in range(60)}


def test_a_kill_at_any_file_operation_leaves_no_partial_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, section: Section, tree: Tree
) -> None:
    files = {"a.txt": "one text\n" * 20, "b.txt": "and another\n" * 20}
    (tmp_path / "undisturbed").mkdir()
    with monkeypatch.context() as patch:
        operations = stop_after(10**9, patch)
        undisturbed = prepare(section(tmp_path / "undisturbed", files), CHAR)
    assert len(operations) > 30
    for call in range(0, len(operations), 3):
        folder = tmp_path / str(call)
        folder.mkdir()
        data = section(folder, files)
        with monkeypatch.context() as patch:
            stop_after(call, patch)
            with pytest.raises(Killed):
                prepare(data, CHAR)
        final = folder / "prepared" / undisturbed.path.name
        assert not final.exists() or tree(final) == tree(undisturbed.path)
        assert tree(prepare(data, CHAR).path) == tree(undisturbed.path)
        assert [path.name for path in final.parent.iterdir() if path.is_dir()] == [final.name]


def test_a_folder_without_its_manifest_is_made_again(tmp_path: Path, section: Section, tree: Tree) -> None:
    first = prepare(section(tmp_path, POEMS), CHAR)
    before = tree(first.path)
    (first.path / "MANIFEST.json").unlink()
    (first.path / "train-00000.bin").write_bytes(b"half")
    assert tree(prepare(section(tmp_path, POEMS), CHAR).path) == before


def test_a_folder_that_has_the_name_of_another_text_is_refused(tmp_path: Path, section: Section) -> None:
    one = prepare(section(tmp_path, {"a.txt": "0123456789" * 20}), CHAR)
    two = prepare(section(tmp_path, {"a.txt": "9876543210" * 20}), CHAR)
    shutil.rmtree(two.path)
    one.path.rename(two.path)
    message = (
        f"{two.path}: this folder is named after the text {two.manifest.fingerprint[:12]}, but holds the text "
        f"{one.manifest.fingerprint[:12]}. Rename or remove it, and prepare the text again."
    )
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        prepare(section(tmp_path, {"a.txt": "9876543210" * 20}), CHAR)


def test_text_in_a_folder_whose_name_is_not_utf_8_is_prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = os.fsencode(tmp_path) + b"/caf\xe9"
    os.mkdir(folder)
    monkeypatch.chdir(os.fsdecode(folder))
    Path("a.txt").write_text("0123456789" * 20)
    prepared = prepare(DataSection(source=".", dir=str(tmp_path / "prepared")), CHAR)
    assert Prepared(prepared.path).manifest.sources[0].name == "caf\\udce9"


def test_a_second_process_waits_for_the_first_and_takes_its_folder(tmp_path: Path, section: Section) -> None:
    data = section(tmp_path, POEMS)
    made = prepare(data, CHAR).path
    aside = made.rename(made.with_name("aside"))
    lines: list[str] = []
    with locks.lock(made.with_name(f".{made.name}.lock"), "the first"):
        thread = threading.Thread(target=lambda: prepare(data, CHAR, lines.append))
        thread.start()
        while not any(line.startswith("waiting: ") for line in lines):
            assert thread.is_alive()
            time.sleep(0.01)
        aside.rename(made)
        (made / "mark").touch()
    thread.join(10)
    assert (made / "mark").exists()  # it was not made again
    assert "held by the first, pid " in next(line for line in lines if line.startswith("waiting: "))


@pytest.mark.parametrize("change", ["Poem number 7, longer", "meoP number 7\n\n"])
def test_text_that_changes_while_it_is_prepared_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, section: Section
) -> None:
    data = section(tmp_path, POEMS)
    build = module.build

    def meddle(*arguments: Any) -> Any:
        tokenizer = build(*arguments)
        (tmp_path / "texts" / "poem 7.txt").write_bytes(change.encode())
        return tokenizer

    monkeypatch.setattr(module, "build", meddle)
    with pytest.raises(
        DataError, match=r"texts: the text changed while it was being prepared\. Run the command again\.$"
    ):
        prepare(data, CHAR)
    assert [path for path in (tmp_path / "prepared").iterdir() if path.is_dir()] == []


def test_a_file_added_or_removed_while_text_is_prepared_is_noticed(tmp_path: Path, section: Section) -> None:
    section(tmp_path, POEMS)
    corpus = scan((open_source(str(tmp_path / "texts")),), 0.1, 10**6)
    fewer = dataclasses.replace(corpus.sources[0], files=corpus.sources[0].files[:-1])
    for changed in (fewer, dataclasses.replace(fewer, files=(*corpus.sources[0].files, corpus.sources[0].files[-1]))):
        with pytest.raises(DataError, match="changed while it was being prepared"):
            list(dataclasses.replace(corpus, sources=(changed,)).parts("train"))


@pytest.mark.parametrize("text", ["a", "\u20ac", "a\u20ac"])
def test_a_document_too_short_to_be_split_is_refused(tmp_path: Path, text: str, section: Section) -> None:
    size = {1: "1 byte", 3: "3 bytes", 4: "4 bytes"}[len(text.encode())]
    message = f"{tmp_path}/texts/a.txt: the text has {size}, too few for a training and a validation part, which"
    with pytest.raises(DataError, match=f"^{re.escape(message)} share no document. Give more, or other text.$"):
        prepare(section(tmp_path, {"a.txt": text}, val_fraction=0.1), CHAR)
    assert not (tmp_path / "prepared").exists()


def test_a_shared_folder_that_cannot_be_written_to_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, section: Section
) -> None:
    first = prepare(section(tmp_path, POEMS), CHAR)
    (tmp_path / "prepared" / fingerprint.CACHE_FILE).unlink(missing_ok=True)
    monkeypatch.setattr(fingerprint, "_SETTLED_NS", -1)

    def refuse(path: Path, data: bytes) -> None:
        raise StorageError(f"{path}: replace = Read-only file system: a writable place is needed")

    monkeypatch.setattr(files, "replace", refuse)
    lines: list[str] = []
    assert prepare(section(tmp_path, POEMS), CHAR, lines.append).path == first.path
    assert len(lines) == 1
    assert lines[0].startswith(
        "warning: the text will be read again next time, because its hashes could not be saved: "
    )
    assert lines[0].endswith("Read-only file system: a writable place is needed")
