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
from hypothesis import given
from hypothesis import strategies as st

from gptlite.config.schema import DataSection, TokenizerSection
from gptlite.data.dataset.prepared import Prepared
from gptlite.data.preparing import encode
from gptlite.data.preparing import prepare as module
from gptlite.data.preparing.corpus import Part, scan
from gptlite.data.preparing.encode import blocks, in_order, learning_text
from gptlite.data.preparing.prepare import prepare
from gptlite.data.sources.sources import open_source
from gptlite.errors import StorageError
from gptlite.storage import files
from gptlite.tokenizers.bpe import last_cut, train_bpe
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
                assert list(data.folder.glob("*.tmp-*")) == []
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


@given(st.lists(st.lists(st.text("aé \n。", min_size=1), min_size=1)), st.integers(1, 30))
def test_blocks_have_all_documents_in_order_and_are_cut_where_that_is_allowed(
    documents: list[list[str]], size: int
) -> None:
    parts = [Part(at == 0, piece.encode()) for pieces in documents for at, piece in enumerate(pieces)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encode, "BLOCK_BYTES", size)
        found = list(blocks(parts, last_cut))
    assert all(sum(len(part.text) for part in block[:-1]) < size for block in found)
    joined: list[bytes] = []
    for part in (part for block in found for part in block):
        if part.begins:
            joined.append(part.text)
        else:
            at = last_cut(joined[-1] + part.text[:8])
            assert at == len(joined[-1]) or last_cut(joined[-1] + part.text) >= len(joined[-1])
            joined[-1] += part.text
    assert joined == ["".join(pieces).encode() for pieces in documents]


def test_text_without_a_place_to_cut_is_cut_anyway_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode, "BLOCK_BYTES", 5)
    monkeypatch.setattr(encode, "LONGEST", 10)
    parts = [Part(True, b"abcdef"), Part(False, b"ghijkl"), Part(False, b"mn")]
    assert list(blocks(parts, last_cut)) == [[Part(True, b"abcdefghijkl", True)], [Part(False, b"mn")]]
    assert not any(part.forced for block in blocks(parts, CharTokenizer("abcdefghijklmn").last_cut) for part in block)


WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "lazy", "dogs", "and", "runs", "home", "before", "rain"]


def learned(folder: Path, text: str) -> list[str]:
    """The pieces of the training part of a text that a BPE learns from."""
    (folder / "a.txt").write_text(text)
    return list(learning_text(scan((open_source(str(folder / "a.txt")),), 0.1, 10**6)))


def test_a_bpe_learns_from_all_of_a_short_text_and_the_same_merges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = " ".join(WORDS[i * i % 13] for i in range(5000))
    monkeypatch.setattr(encode, "BLOCK_BYTES", 500)
    monkeypatch.setattr("gptlite.data.sources.documents._PIECE", 400)
    found = learned(tmp_path, text)
    assert len(found) > 20
    assert "".join(found) == (train := text[: int(0.9 * len(text))])
    assert train_bpe(found, 300).ranks == train_bpe([train], 300).ranks


@pytest.mark.parametrize("bound", ["SAMPLE_BYTES", "WORD_BYTES"])
def test_of_a_long_text_a_bpe_learns_from_every_second_fourth_or_further_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    text = " ".join(WORDS[i % 13] + "".join(chr(97 + i // 26**place % 26) for place in range(3)) for i in range(5000))
    monkeypatch.setattr(encode, "BLOCK_BYTES", 500)
    monkeypatch.setattr("gptlite.data.sources.documents._PIECE", 400)
    every = learned(tmp_path, text)
    monkeypatch.setattr(encode, bound, 6000)
    found = learned(tmp_path, text)
    assert found in [every[:: 2**power] for power in range(1, 6)]


def test_a_word_without_end_does_not_stop_the_trainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gptlite.data.sources.documents._PIECE", 4000)  # each is added to all that is not cut yet
    found = learned(tmp_path, "x" * 300_000)
    assert "".join(found) == "x" * 270_000
    assert max(map(len, found)) == 4096
