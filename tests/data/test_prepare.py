from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import platform
import re
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gptlite import durable
from gptlite.config.schema import DataSection, TokenizerSection
from gptlite.data import cards, hashes
from gptlite.data import prepare as module
from gptlite.data.corpus import scan
from gptlite.data.prepare import find_prepared, prepare
from gptlite.data.prepared import Prepared
from gptlite.data.sources import open_source
from gptlite.errors import DataError, RunError, StorageError

CHAR = TokenizerSection(kind="char")
BPE = TokenizerSection(kind="bpe", vocab_size=270)
POEMS = {f"poem {i}.txt": f"Poem number {i}\r\nna\u00efve \u4e16\u754c {'la ' * (i % 7)}\n" for i in range(60)}


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Prepared]:
    """Write files and prepare them: make({"a.txt": "text"}, val_fraction=0.2)."""

    def prepared(files: dict[str, str], tokenizer: TokenizerSection = CHAR, **keys: Any) -> Prepared:
        return prepare(section(tmp_path, files, **keys), tokenizer)

    return prepared


def section(folder: Path, files: dict[str, str], **keys: Any) -> DataSection:
    """A config for these files, one of them or a folder of them, prepared below `folder`."""
    texts = folder / "texts"
    texts.mkdir(exist_ok=True)
    for name, text in files.items():
        (texts / name).write_bytes(text.encode())
    source = texts / next(iter(files)) if len(files) == 1 else texts
    return DataSection(**{"source": str(source), "dir": str(folder / "prepared")} | keys)


def documents(prepared: Prepared, name: Any) -> list[str]:
    """The texts of a split, cut at the starts of its documents."""
    split, tokenizer = prepared.split(name), prepared.tokenizer()
    ends = [*split.document_starts().tolist()[1:], split.n_tokens]
    ids = [split.read(start, end - start) for start, end in zip(split.document_starts().tolist(), ends, strict=True)]
    if prepared.manifest.train.documents + prepared.manifest.val.documents > 2:
        assert all(part[0] == tokenizer.eot_id for part in ids)
        ids = [part[1:] for part in ids]
    assert not any((part == tokenizer.eot_id).any() for part in ids)
    return [tokenizer.decode(part.tolist()) for part in ids]


def tree(folder: Path) -> dict[str, str]:
    """Every file under a folder with its sha256."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_one_document_is_split_at_nine_tenths_and_has_no_end_of_text(make: Callable[..., Prepared]) -> None:
    prepared = make({"book.txt": "0123456789" * 10})
    assert documents(prepared, "train") == ["0123456789" * 9]
    assert documents(prepared, "val") == ["0123456789"]
    manifest = prepared.manifest
    assert (manifest.train.tokens, manifest.train.bytes, manifest.val.tokens) == (90, 90, 10)
    assert manifest.split_rule.rule == "tail_of_the_document"
    assert manifest.reference.unigram == pytest.approx(np.log2(10), abs=1e-4)
    assert prepared.path.name == f"book-{manifest.fingerprint[:12]}"


@pytest.mark.parametrize("tokenizer", [CHAR, BPE])
def test_every_document_comes_back_in_order_on_one_side(
    make: Callable[..., Prepared], tokenizer: TokenizerSection
) -> None:
    prepared = make(POEMS, tokenizer)
    train, val = documents(prepared, "train"), documents(prepared, "val")
    assert prepared.manifest.split_rule.rule == "document_hash"
    assert sorted(train + val) == sorted(POEMS.values())
    in_order = [POEMS[name] for name in sorted(POEMS)]
    for part in (train, val):
        assert part == [text for text in in_order if text in set(part)]
    below = [t for t in in_order if int(hashlib.sha256(t.encode()).hexdigest(), 16) / 2**256 < 0.1]
    assert val == below
    assert prepared.split("val").n_bytes == sum(len(text.encode()) for text in val)
    assert (prepared.split("val").n_documents, prepared.split("train").n_documents) == (len(val), len(train))


def test_few_documents_each_give_a_tail_with_end_of_text_before_both_parts(make: Callable[..., Prepared]) -> None:
    prepared = make({"a.txt": "a" * 100, "b.txt": "\u00e9" * 25})  # 50 bytes: the tail of 5 starts inside a character
    assert documents(prepared, "train") == ["a" * 90, "\u00e9" * 23]
    assert documents(prepared, "val") == ["a" * 10, "\u00e9" * 2]
    assert prepared.manifest.split_rule.rule == "tail_of_each_document"


def test_characters_of_the_validation_part_are_known(make: Callable[..., Prepared]) -> None:
    prepared = make({"a.txt": "a" * 99 + "z"})
    assert documents(prepared, "val") == ["a" * 9 + "z"]


@pytest.mark.parametrize(
    ("files", "start"),
    [
        ({"a.txt": "abc\n" * 30, "b.txt": "abc\n" * 30}, "end of text"),
        ({"a.txt": "abbb\n" * 30}, "\n"),
        ({"a.txt": "abbb" * 30 + "\n"}, "b"),  # the newline is in the validation part only
        ({"a.txt": "abbb" * 30}, "b"),
    ],
)
def test_sampling_starts_from_end_of_text_or_newline_or_the_commonest(
    make: Callable[..., Prepared], files: dict[str, str], start: str
) -> None:
    prepared = make(files)
    tokenizer = prepared.tokenizer()
    id_ = prepared.manifest.start_id
    assert ("end of text" if id_ == tokenizer.eot_id else tokenizer.decode([id_])) == start


def test_a_second_prepare_builds_nothing_and_reads_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashes, "_SETTLED_NS", -1)  # trust files that were written just now
    data = section(tmp_path, POEMS)
    first = prepare(data, CHAR)
    before = tree(tmp_path / "prepared")

    def refuse(*_: object) -> Any:
        raise AssertionError("work was done again")

    monkeypatch.setattr(module, "build", refuse)
    monkeypatch.setattr(module, "scan", refuse)
    monkeypatch.setattr(hashes, "_digest", refuse)
    assert prepare(data, CHAR).path == first.path
    assert tree(tmp_path / "prepared") == before


def test_nothing_is_found_and_nothing_written_before_prepare(tmp_path: Path) -> None:
    data = section(tmp_path, POEMS)
    assert find_prepared(data, CHAR) is None
    assert not (tmp_path / "prepared").exists()
    made = prepare(data, CHAR)
    found = find_prepared(data, CHAR)
    assert found is not None
    assert found.path == made.path


def test_the_folder_does_not_depend_on_where_the_text_lies(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "y").mkdir()
    one, two = (prepare(section(tmp_path / name, POEMS), CHAR).path for name in "xy")
    assert one.name == two.name
    assert tree(one) == tree(two)
    assert not any(str(tmp_path).encode() in path.read_bytes() for path in one.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    "change",
    [
        {"files": {"b.txt": "other\n" * 40}},
        {"encoding": "cp1252"},
        {"normalize": "nfc"},
        {"val_fraction": 0.2},
        {"val_max_bytes": 20},
        {"tokenizer": BPE},
        {"tokenizer": TokenizerSection(kind="bpe", vocab_size=271)},
    ],
)
def test_whatever_changes_the_output_changes_the_name(tmp_path: Path, change: dict[str, Any]) -> None:
    files = {"a.txt": "some text\n" * 40, "b.txt": "text\n" * 40}
    before = prepare(section(tmp_path, files), CHAR).path.name
    files |= change.pop("files", {})
    tokenizer = change.pop("tokenizer", CHAR)
    assert find_prepared(section(tmp_path, files), CHAR) is None or change or tokenizer != CHAR
    after = prepare(section(tmp_path, files, **change), tokenizer).path.name
    assert before.rpartition("-")[0] == after.rpartition("-")[0] == "texts"
    assert before != after


def test_what_does_not_change_the_output_does_not_change_the_name(tmp_path: Path) -> None:
    made = prepare(section(tmp_path, POEMS), CHAR)
    for keys in ({"encoding": "UTF8"}, {"order": "random"}):
        assert prepare(section(tmp_path, POEMS, **keys), CHAR).path == made.path


@pytest.mark.parametrize(
    ("names", "stem"),
    [
        (["My book (2nd).txt"], "My-book-2nd"),
        (["..."], "data"),
        (["\u0432\u043e\u0439\u043d\u0430.txt"], "\u0432\u043e\u0439\u043d\u0430"),
        (["a.txt", "b.txt", "c.txt"], "a-and-2-more"),
    ],
)
def test_the_folder_is_named_after_the_text(tmp_path: Path, names: list[str], stem: str) -> None:
    for name in names:
        section(tmp_path, {name: "some text " * 20})
    data = DataSection(source=[str(tmp_path / "texts" / name) for name in names], dir=str(tmp_path / "prepared"))
    prepared = prepare(data, CHAR)
    assert prepared.path.name.rpartition("-")[0] == stem
    assert [source.name for source in prepared.manifest.sources] == names


def test_the_manifest_says_where_the_text_came_from(make: Callable[..., Prepared]) -> None:
    book = "some text\n" * 30
    prepared = make({"a.txt": book})
    content = json.loads((prepared.path / "manifest.json").read_text("utf-8"))
    sha256 = hashlib.sha256(book.encode()).hexdigest()
    assert content["sources"] == [{"name": "a.txt", "files": 1, "bytes": 300, "sha256": sha256, "python": None}]
    assert content["split_rule"] == {
        "rule": "tail_of_the_document",
        "threshold": 0.1,
        "val_fraction": 0.1,
        "val_max_bytes": 10_000_000,
    }
    assert content["format_version"] == 1
    prepared.verify()


class Killed(BaseException):
    """Stands for a SIGKILL: nothing on disk changes after it."""


def kill_at(call: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """From the given file operation on, every one raises Killed; the names of those that happened."""
    happened: list[str] = []

    def syscall(operation: Callable[..., Any], *arguments: Any) -> Any:
        if len(happened) >= call:
            raise Killed
        happened.append(operation.__name__)
        return operation(*arguments)

    monkeypatch.setattr(durable, "syscall", syscall)
    return happened


def test_a_kill_at_any_file_operation_leaves_nothing_half_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"a.txt": "one text\n" * 20, "b.txt": "and another\n" * 20}
    (tmp_path / "undisturbed").mkdir()
    with monkeypatch.context() as patch:
        operations = kill_at(10**9, patch)
        undisturbed = prepare(section(tmp_path / "undisturbed", files), CHAR)
    assert len(operations) > 30
    for call in range(0, len(operations), 3):
        folder = tmp_path / str(call)
        folder.mkdir()
        data = section(folder, files)
        with monkeypatch.context() as patch:
            kill_at(call, patch)
            with pytest.raises(Killed):
                prepare(data, CHAR)
        final = folder / "prepared" / undisturbed.path.name
        assert not final.exists() or tree(final) == tree(undisturbed.path)
        assert tree(prepare(data, CHAR).path) == tree(undisturbed.path)
        assert [path.name for path in final.parent.iterdir() if path.is_dir()] == [final.name]


def test_an_error_while_writing_takes_the_unfinished_folder_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> Any:
        raise StorageError("disk: write = No space left on device: the disk is full")

    monkeypatch.setattr(module.ShardWriter, "finish", full)
    with pytest.raises(StorageError, match="No space left"):
        prepare(section(tmp_path, POEMS), CHAR)
    assert [path for path in (tmp_path / "prepared").iterdir() if path.is_dir()] == []


def test_a_folder_without_its_manifest_is_made_again(make: Callable[..., Prepared]) -> None:
    first = make(POEMS)
    before = tree(first.path)
    (first.path / "manifest.json").unlink()
    (first.path / "train-00000.bin").write_bytes(b"half")
    assert tree(make(POEMS).path) == before


def test_two_processes_that_race_end_with_one_folder(tmp_path: Path) -> None:
    data = section(tmp_path, POEMS)
    code = (
        "import sys\nfrom gptlite.config.schema import DataSection, TokenizerSection\n"
        "from gptlite.data.prepare import prepare\n"
        "data = DataSection(source=sys.argv[1], dir=sys.argv[2])\n"
        "print(prepare(data, TokenizerSection(kind='char')).path)"
    )
    arguments = [sys.executable, "-c", code, str(data.source), data.dir]
    racers = [subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    one, two = (racer.communicate(timeout=60)[0].strip() for racer in racers)
    assert one == two
    assert [racer.returncode for racer in racers] == [0, 0]
    Prepared(Path(one)).verify()
    assert [path.name for path in Path(data.dir).iterdir() if path.is_dir()] == [Path(one).name]


def test_a_second_process_waits_for_the_first_and_takes_its_folder(tmp_path: Path) -> None:
    data = section(tmp_path, POEMS)
    made = prepare(data, CHAR).path
    aside = made.rename(made.with_name("aside"))
    lines: list[str] = []
    with durable.lock(made.with_name(f".{made.name}.lock"), "the first"):
        thread = threading.Thread(target=lambda: prepare(data, CHAR, lines.append))
        thread.start()
        while not any(line.startswith("waiting: ") for line in lines):
            assert thread.is_alive()
            time.sleep(0.01)
        aside.rename(made)
        inode = made.stat().st_ino
    thread.join(10)
    assert made.stat().st_ino == inode
    assert "held by the first, pid " in next(line for line in lines if line.startswith("waiting: "))


@pytest.mark.parametrize("change", ["Poem number 7, longer", "meoP number 7\r\nna\u00efve \u4e16\u754c \n"])
def test_text_that_changes_meanwhile_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    data = section(tmp_path, POEMS)
    build = module.build

    def meddle(*arguments: Any) -> Any:
        tokenizer = build(*arguments)
        (tmp_path / "texts" / "poem 7.txt").write_bytes(change.encode())
        return tokenizer

    monkeypatch.setattr(module, "build", meddle)
    with pytest.raises(DataError, match=r"texts: text = changed while it was read: .*; run the command again"):
        prepare(data, CHAR)
    assert [path for path in (tmp_path / "prepared").iterdir() if path.is_dir()] == []


def test_a_file_that_is_added_or_taken_away_meanwhile_is_noticed(tmp_path: Path) -> None:
    section(tmp_path, POEMS)
    corpus = scan((open_source(str(tmp_path / "texts")),), 0.1, 10**6)
    fewer = dataclasses.replace(corpus.sources[0], files=corpus.sources[0].files[:-1])
    for files in (fewer, dataclasses.replace(fewer, files=(*corpus.sources[0].files, corpus.sources[0].files[-1]))):
        with pytest.raises(DataError, match="changed while it was read"):
            list(dataclasses.replace(corpus, sources=(files,)).parts())


def test_a_system_without_locks_is_told_so_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, holder: str) -> Any:
        raise RunError(f"{path}: platform = win32: training needs file locks")

    monkeypatch.setattr(durable, "lock", refuse)
    with pytest.raises(RunError, match="needs file locks"):
        prepare(section(tmp_path, POEMS), CHAR)


def test_a_data_set_whose_text_was_edited_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "to be or not to be\n" * 20
    card = cards.Card("plays", "plays", "file:///nowhere", hashlib.sha256(text.encode()).hexdigest(), len(text), "none")
    monkeypatch.setattr(cards, "find_card", {"plays": card}.get)
    monkeypatch.chdir(tmp_path)
    downloaded = tmp_path / "data/downloads/plays.txt"
    downloaded.parent.mkdir(parents=True)
    downloaded.write_text(text)
    data = DataSection(source="plays", dir="prepared")
    assert prepare(data, CHAR).path.name.startswith("plays-")
    downloaded.write_text(text.replace("not", "yes"))
    with pytest.raises(DataError, match=r"plays\.txt: text = sha256 [0-9a-f]{12}: plays has [0-9a-f]{12}; delete it"):
        prepare(data, CHAR)


@pytest.mark.parametrize("text", ["a", "\u20ac", "a\u20ac"])
def test_a_document_too_short_to_be_split_is_refused(tmp_path: Path, text: str) -> None:
    size = len(text.encode())
    message = f"{tmp_path}/texts/a.txt: text = {size} bytes: too short for a training and a validation part; "
    with pytest.raises(DataError, match=f"^{re.escape(message)}give more text$"):
        prepare(section(tmp_path, {"a.txt": text}, val_fraction=0.1), CHAR)
    assert not (tmp_path / "prepared").exists()


def test_a_bad_text_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    data = section(tmp_path, {"a.txt": "x"}, source=str(tmp_path / "texts"))
    (tmp_path / "texts" / "b.txt").write_bytes(b"caf\xe9 au lait")
    with pytest.raises(DataError, match=r"b\.txt: byte 3 = 0xe9: not valid utf-8; it looks like cp1252"):
        prepare(data, CHAR)
    assert not (tmp_path / "prepared").exists()


def test_a_shared_folder_that_cannot_be_written_to_is_used(
    make: Callable[..., Prepared], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = make(POEMS)
    (tmp_path / "prepared" / hashes.FILE_NAME).unlink(missing_ok=True)
    monkeypatch.setattr(hashes, "_SETTLED_NS", -1)

    def refuse(path: Path, data: bytes) -> None:
        raise StorageError(f"{path}: replace = Read-only file system: a writable place is needed")

    monkeypatch.setattr(durable, "replace", refuse)
    lines: list[str] = []
    assert prepare(section(tmp_path, POEMS), CHAR, lines.append).path == first.path
    assert len(lines) == 1
    assert lines[0].startswith("warning: ")
    assert lines[0].endswith("Read-only file system: a writable place is needed; the text is read again next time")


def test_a_folder_that_holds_its_own_prepared_data_does_not_feed_on_it(tmp_path: Path) -> None:
    section(tmp_path, POEMS)
    data = DataSection(source=str(tmp_path), dir=str(tmp_path / "prepared"))
    assert prepare(data, CHAR).path == prepare(data, CHAR).path


def test_the_report_counts_what_was_read_and_what_was_skipped(tmp_path: Path) -> None:
    data = section(tmp_path, POEMS)
    (tmp_path / "texts" / "x.png").write_bytes(b"\0")
    lines: list[str] = []
    prepare(data, CHAR, lines.append)
    size = sum(len(text.encode()) for text in POEMS.values())
    assert lines == [f"texts: 60 files, {size:,} bytes of text, 1 binary skipped"]


def test_a_tokenizer_with_fewer_merges_than_asked_is_recorded_and_warned_about(tmp_path: Path) -> None:
    lines: list[str] = []
    prepared = prepare(
        section(tmp_path, {"a.txt": "ab" * 100}), TokenizerSection(kind="bpe", vocab_size=5000), lines.append
    )
    record = prepared.manifest.tokenizer
    assert record.requested_vocab_size == 5000
    assert record.vocab_size == prepared.tokenizer().vocab_size < 300
    assert lines[1].startswith(
        f"warning: tokenizer.vocab_size = 5000: the training text has merges for {record.vocab_size},"
    )


def test_python_stdlib_names_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in POEMS:
        (tmp_path / f"{name[:-4]}.py").write_text(POEMS[name])
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    prepared = prepare(DataSection(source="python-stdlib", dir=str(tmp_path / "prepared")), CHAR)
    (source,) = prepared.manifest.sources
    assert (source.name, source.files, source.python) == ("python-stdlib", 60, platform.python_version())
    assert prepared.path.name.startswith("python-stdlib-")


def test_large_vocabularies_take_four_bytes(make: Callable[..., Prepared]) -> None:
    text = "".join(map(chr, [*range(0x10000, 0x20000)])) + "x" * 50_000
    prepared = make({"a.txt": text}, val_max_bytes=10_000)
    assert prepared.manifest.tokenizer.vocab_size == 65538
    assert prepared.split("train").read(0, 3).dtype == np.uint32
    assert documents(prepared, "train")[0] == text[:-10_000]


def test_unreadable_folders_for_output_are_storage_errors(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageError, match=f"{re.escape(str(tmp_path / 'file'))}.*create folder = Not a directory"):
        prepare(section(tmp_path, POEMS, dir=os.fspath(tmp_path / "file" / "x")), CHAR)
