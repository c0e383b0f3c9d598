"""Encoding in parallel and in several attempts: the files are always the same."""

from __future__ import annotations

import errno
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from file_faults import Killed, stop_after

from gptlite.config.schema import DataSection, TokenizerSection
from gptlite.data.dataset.prepared import Prepared
from gptlite.data.preparing import blocks, encode
from gptlite.data.preparing import prepare as module
from gptlite.data.preparing.corpus import scan
from gptlite.data.preparing.encode import in_order
from gptlite.data.preparing.fingerprint import open_sources
from gptlite.data.preparing.prepare import prepare
from gptlite.data.preparing.split import SPLITS, SplitName
from gptlite.data.sources.documents import Document, Skipped
from gptlite.data.sources.sources import Source
from gptlite.errors import DataError, StorageError
from gptlite.storage import files
from gptlite.tokenizers.char import CharTokenizer

Section = Callable[..., DataSection]
Tree = Callable[[Path], dict[str, str]]
Expected = Callable[[TokenizerSection], dict[str, str]]
CHAR = TokenizerSection(kind="char")
BPE = TokenizerSection(kind="bpe", vocab_size=300)
TEXTS = {
    f"{i:02}.txt": "".join(f"{i} times {j} are {i * j}, né?\n" for j in range(5 + 40 * (i % 5 == 0))) for i in range(25)
}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many blocks and shards of a short text."""
    monkeypatch.setattr(blocks, "BLOCK_CHARACTERS", 100)
    monkeypatch.setattr(module, "encode_corpus", partial(encode.encode_corpus, shard_tokens=400))


@pytest.mark.parametrize("tokenizer", [CHAR, BPE], ids=["char", "bpe"])
@pytest.mark.parametrize("texts", [TEXTS, {"one.txt": "".join(TEXTS.values())}], ids=["many", "one"])
def test_any_number_of_workers_writes_the_same_bytes(
    tmp_path: Path, section: Section, tree: Tree, tokenizer: TokenizerSection, texts: dict[str, str]
) -> None:
    made = []
    for workers in (1, 2, 8):
        (folder := tmp_path / str(workers)).mkdir()
        prepared = prepare(section(folder, texts), tokenizer, workers=workers)
        assert len(prepared.manifest.train.shards) > 3
        made.append(tree(prepared.path))
    assert made[0] == made[1] == made[2]


@pytest.mark.parametrize("split", ["train", "val"])
@pytest.mark.parametrize(
    "texts",
    [{f"{i}.txt": f"text {i}\n" for i in range(200)}, TEXTS, {"one.txt": "".join(TEXTS.values())}],
    ids=["documents", "tails", "one"],
)
def test_documents_without_a_part_of_a_split_can_be_left_out(
    tmp_path: Path, section: Section, texts: dict[str, str], split: SplitName
) -> None:
    corpus = scan(open_sources(section(tmp_path, texts)), 0.1, 10**6)
    found, every = list(corpus.parts(having=split)), list(corpus.parts())
    wanted = [part for part in every if part.split == split]
    assert [part for part in found if part.split == split] == wanted != []
    if corpus.plan.rule.rule == "document_hash":
        assert found == wanted


def test_after_an_error_the_rest_of_the_text_is_not_read(
    tmp_path: Path, section: Section, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = 0

    def fail(*_: object, **__: object) -> None:
        raise DataError("no ids")

    def documents(self: Source, skipped: Skipped | None = None) -> Iterator[Document]:
        def pieces() -> Iterator[bytes]:
            nonlocal read
            for piece in [b"one two\n"] * 1000:
                if threading.current_thread() is not threading.main_thread():
                    read += 1
                    time.sleep(0.002)
                yield piece

        yield Document("one.txt", pieces())

    monkeypatch.setattr(Source, "documents", documents)
    monkeypatch.setattr(encode, "encode_block", fail)
    corpus = scan(open_sources(section(tmp_path, {"one.txt": "text\n"})), 0.1, 10**6)
    (tmp_path / "made").mkdir()
    encode.write_progress(tmp_path / "made", {name: encode.Progress() for name in SPLITS})
    with pytest.raises(DataError, match="no ids"):
        encode.encode_corpus(tmp_path / "made", corpus, CharTokenizer.of([corpus.characters]))
    assert read < 1000


@pytest.fixture
def expected(tmp_path: Path, section: Section, tree: Tree) -> Expected:
    def of(tokenizer: TokenizerSection) -> dict[str, str]:
        """The files of TEXTS, prepared without a fault."""
        (undisturbed := tmp_path / "undisturbed").mkdir()
        return tree(prepare(section(undisturbed, TEXTS), tokenizer).path)

    return of


def folders(data: DataSection) -> list[Path]:
    """The finished folders; those under way have a point in their name."""
    return [path for path in data.folder.glob("*") if path.is_dir() and path.suffix == ""]


@pytest.mark.slow
def test_fifty_kills_and_continuations_end_in_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, section: Section, tree: Tree, expected: Expected
) -> None:
    undisturbed = expected(BPE)
    (killed := tmp_path / "killed").mkdir()
    data, rng = section(killed, TEXTS), random.Random(0)
    kills = ends = 0
    while kills < 50:
        try:
            with monkeypatch.context() as patch:
                stop_after(rng.randrange(15, 150), patch)
                prepare(data, BPE)
        except Killed:
            kills += 1
        for made in folders(data):
            assert tree(made) == undisturbed
            files.remove_tree(made)
            ends += 1
    assert ends > 2  # some continuations got to the end, others did not
    assert tree(prepare(data, BPE).path) == undisturbed


def test_a_continuation_encodes_only_what_is_in_no_finished_shard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, section: Section
) -> None:
    data, encoded = section(tmp_path, TEXTS), []
    encode_block = encode.encode_block

    def counting(block: blocks.Block, *arguments: Any, **keys: Any) -> blocks.EncodedBlock:
        encoded.append((block.split, block.number))
        return encode_block(block, *arguments, **keys)

    monkeypatch.setattr(encode, "encode_block", counting)
    with monkeypatch.context() as patch:
        patch.setattr(encode.BaselineMeter, "finish", lambda _: (_ for _ in ()).throw(Killed))  # near the end
        with pytest.raises(Killed):
            prepare(data, CHAR)
    first, lines = len(encoded), list[str]()
    encoded.clear()
    prepare(data, CHAR, lines.append)
    assert 0 < len(encoded) < first / 4
    assert lines[-1] == "continuing where an earlier preparation of this text was stopped"


def test_a_damaged_unfinished_folder_is_never_taken_for_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, section: Section, tree: Tree
) -> None:
    data = section(tmp_path, TEXTS)
    expected = tree((finished := prepare(data, CHAR)).path)
    files.remove_tree(finished.path)
    for name in ("train-00001.bin", "progress.json", "tokenizer/gptlite_tokenizer.json"):
        with monkeypatch.context() as patch:
            patch.setattr(encode.BaselineMeter, "finish", lambda _: (_ for _ in ()).throw(Killed))
            with pytest.raises(Killed):
                prepare(data, CHAR)
        (unfinished,) = data.folder.glob("*.tmp-*")
        content = bytearray((unfinished / name).read_bytes())
        content[len(content) // 2] ^= 1
        (unfinished / name).write_bytes(content)
        if name.startswith("train"):
            with pytest.raises(DataError, match=r"train-00001\.bin: the prepared data is damaged: its sha256 is"):
                prepare(data, CHAR)
        made = prepare(data, CHAR)
        assert tree(made.path) == expected
        files.remove_tree(made.path)


def test_a_full_disk_at_any_operation_leaves_nothing_that_looks_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, section: Section, tree: Tree, expected: Expected
) -> None:
    undisturbed = expected(CHAR)
    (full := tmp_path / "full").mkdir()
    data, lines = section(full, TEXTS), list[str]()
    for operations in range(0, 10**6, 7):
        with monkeypatch.context() as patch:
            stop_after(operations, patch, OSError(errno.ENOSPC, ""), (os.write, os.open, os.mkdir, files._fsync))
            try:
                prepare(data, CHAR)
                break
            except StorageError as error:
                lines.append(str(error))
        for made in folders(data):  # the disk was full after it had its name
            assert tree(made) == undisturbed
            files.remove_tree(made)
    assert len(lines) > 10
    assert all("The disk or your quota is full" in line and "\n" not in line for line in lines)
    (made,) = folders(data)
    assert tree(made) == undisturbed


def test_a_ctrl_c_leaves_what_the_next_preparation_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, section: Section
) -> None:
    data = section(tmp_path, TEXTS)
    with monkeypatch.context() as patch:
        stop_after(60, patch, KeyboardInterrupt)
        with pytest.raises(KeyboardInterrupt):
            prepare(data, CHAR)
    assert folders(data) == []
    lines: list[str] = []
    Prepared(prepare(data, CHAR, lines.append).path).verify()
    assert lines[-1].startswith("continuing ")


def test_results_come_in_order_and_few_items_are_taken_ahead() -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for item in range(20):
            taken.append(item)
            yield item

    with ThreadPoolExecutor(4) as pool:
        for done, result in enumerate(in_order(pool, lambda item: item * item, items(), 3)):
            assert result == done * done
            assert len(taken) <= done + 3
    with ThreadPoolExecutor(1) as pool, pytest.raises(ZeroDivisionError):
        list(in_order(pool, lambda item: 1 // (item - 2), range(5), 2))
