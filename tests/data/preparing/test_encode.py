"""Encoding in parallel and in several attempts: the files are always the same."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from file_faults import Killed, stop_after

from gptlite.config.schema import DataSection, TokenizerSection
from gptlite.data.dataset.prepared import Prepared
from gptlite.data.preparing import encode
from gptlite.data.preparing import prepare as module
from gptlite.data.preparing.corpus import Part
from gptlite.data.preparing.encode import in_order
from gptlite.data.preparing.prepare import prepare
from gptlite.errors import StorageError
from gptlite.storage import files

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
    monkeypatch.setattr(encode, "BLOCK_BYTES", 100)
    monkeypatch.setattr("gptlite.data.sources.documents._PIECE", 80)
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
        made.append(tree(prepared.path))
        assert "train-00003.bin" in made[-1]
    assert made[0] == made[1] == made[2]


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


def kill_near_the_end(data: DataSection, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stop a preparation after its last shard; return its folder."""
    with monkeypatch.context() as patch:
        patch.setattr(encode.BaselineMeter, "finish", lambda _: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            prepare(data, CHAR)
    (unfinished,) = data.folder.glob("*.tmp-*")
    return unfinished


def test_a_continuation_encodes_only_what_is_in_no_finished_shard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, section: Section
) -> None:
    data, encoded = section(tmp_path, TEXTS), []
    encode_block = encode.encode_block

    def counting(block: list[Part], **keys: Any) -> Any:
        encoded.append(block)
        return encode_block(block, **keys)

    monkeypatch.setattr(encode, "encode_block", counting)
    unfinished = kill_near_the_end(data, monkeypatch)
    first, lines = len(encoded), list[str]()
    (unfinished / "train-00099.bin").write_bytes(b"half a shard")
    encoded.clear()
    made = prepare(data, CHAR, lines.append)
    assert 0 == len(encoded) < first
    assert lines[-1] == "continuing where an earlier preparation of this text was stopped"
    assert not (made.path / "train-00099.bin").exists()


@pytest.mark.parametrize("name", ["train-00001.bin", "MANIFEST.json", "tokenizer/gptlite_tokenizer.json"])
def test_a_damaged_unfinished_folder_is_not_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, section: Section, tree: Tree, name: str
) -> None:
    data = section(tmp_path, TEXTS)
    expected = tree((finished := prepare(data, CHAR)).path)
    files.remove_tree(finished.path)
    unfinished = kill_near_the_end(data, monkeypatch)
    content = bytearray((unfinished / name).read_bytes())
    content[len(content) // 2] ^= 1
    (unfinished / name).write_bytes(content)
    lines: list[str] = []
    assert tree(prepare(data, CHAR, lines.append).path) == expected
    assert not any(line.startswith("continuing") for line in lines)


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
