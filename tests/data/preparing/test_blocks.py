"""Blocks: text is cut where a tokenizer gives both halves the ids that it gives the whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptlite.data.preparing import encode as module
from gptlite.data.preparing.corpus import Part, scan
from gptlite.data.preparing.encode import blocks, encode_block, learning_text
from gptlite.data.sources.sources import open_source
from gptlite.tokenizers.bpe import last_cut, train_bpe
from gptlite.tokenizers.char import CharTokenizer


@given(st.lists(st.lists(st.text("aé \n。", min_size=1), min_size=1)), st.integers(1, 30))
def test_blocks_have_all_documents_in_order_and_are_cut_where_that_is_allowed(
    documents: list[list[str]], size: int
) -> None:
    parts = [Part(at == 0, piece.encode()) for pieces in documents for at, piece in enumerate(pieces)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK_BYTES", size)
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
    monkeypatch.setattr(module, "BLOCK_BYTES", 5)
    monkeypatch.setattr(module, "LONGEST", 10)
    parts = [Part(True, b"abcdef"), Part(False, b"ghijkl"), Part(False, b"mn")]
    assert list(blocks(parts, last_cut)) == [[Part(True, b"abcdefghijkl", True)], [Part(False, b"mn")]]
    assert not any(part.forced for block in blocks(parts, CharTokenizer("abcdefghijklmn").last_cut) for part in block)


def test_end_of_text_comes_before_each_document_that_begins() -> None:
    block = [Part(False, b"b"), Part(True, b"ab"), Part(True, b"a")]
    assert encode_block(block, CharTokenizer("ab"), mark_documents=True).tolist() == [1, 2, 0, 1, 2, 0]
    assert encode_block(block, CharTokenizer("ab"), mark_documents=False).tolist() == [1, 0, 1, 0]


WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "lazy", "dogs", "and", "runs", "home", "before", "rain"]


def learned(folder: Path, text: str) -> list[str]:
    """The pieces of the training part of a text that a BPE learns from."""
    (folder / "a.txt").write_text(text)
    return list(learning_text(scan((open_source(str(folder / "a.txt")),), 0.1, 10**6)))


def test_a_bpe_learns_from_all_of_a_short_text_and_the_same_merges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = " ".join(WORDS[i * i % 13] for i in range(5000))
    monkeypatch.setattr(module, "BLOCK_BYTES", 500)
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
    monkeypatch.setattr(module, "BLOCK_BYTES", 500)
    monkeypatch.setattr("gptlite.data.sources.documents._PIECE", 400)
    every = learned(tmp_path, text)
    monkeypatch.setattr(module, bound, 6000)
    found = learned(tmp_path, text)
    assert found in [every[:: 2**power] for power in range(1, 6)]


def test_a_word_without_end_does_not_stop_the_trainer(tmp_path: Path) -> None:
    found = learned(tmp_path, "x" * 300_000)
    assert "".join(found) == "x" * 270_000
    assert max(map(len, found)) == 4096
