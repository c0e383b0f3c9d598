"""Blocks: text is cut where a tokenizer gives both halves the ids that it gives the whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptlite.data.preparing import blocks as module
from gptlite.data.preparing.blocks import Block, blocks, encode_block
from gptlite.data.preparing.corpus import Part
from gptlite.tokenizers.char import CharTokenizer
from gptlite.tokenizers.cuts import last_cut


@given(
    st.lists(st.tuples(st.sampled_from(["train", "val"]), st.lists(st.text("aé \n", min_size=1), min_size=1))),
    st.integers(1, 12),
)
def test_blocks_have_all_documents_of_each_split_in_order(documents: list[tuple], size: int) -> None:
    parts = [Part(split, at == 0, piece.encode()) for split, pieces in documents for at, piece in enumerate(pieces)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK_CHARACTERS", size)
        found = list(blocks(parts, last_cut))
    for split in ("train", "val"):
        mine = [block for block in found if block.split == split]
        assert [block.number for block in mine] == list(range(len(mine)))
        joined: list[str] = []
        for block in mine:
            for text, begins in zip(block.texts, block.begins, strict=True):
                if begins:
                    joined.append("")
                if text:
                    joined[-1] += text.decode()
        assert joined == ["".join(pieces) for of, pieces in documents if of == split]


@given(st.lists(st.text("aé \n。", min_size=1), min_size=1), st.integers(1, 12))
def test_a_document_is_cut_at_the_last_place_of_what_was_read(pieces: list[str], size: int) -> None:
    expected, left = [], b""
    for piece in pieces:
        left += piece.encode()
        at = last_cut(left) if len(left.decode()) >= size else 0
        expected += [left[:at]] if at else []
        left = left[at:]
    parts = [Part("train", at == 0, piece.encode()) for at, piece in enumerate(pieces)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK_CHARACTERS", size)
        found = list(blocks(parts, last_cut))[:-1]  # the last one is that of the validation text
    assert [block.texts for block in found] == [(text,) for text in [*expected, left]]


def test_text_without_a_place_to_cut_is_cut_anyway_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK_CHARACTERS", 5)
    monkeypatch.setattr(module, "LONGEST", 10)
    parts = [Part("train", True, b"abcdef"), Part("train", False, b"ghijkl"), Part("train", False, b"mn")]
    first, second, val = blocks(parts, last_cut)
    assert (first.texts, first.begins, first.forced) == ((b"abcdefghijkl",), (True,), True)
    assert (second.texts, second.begins, second.forced) == ((b"mn",), (False,), False)
    assert val == Block("val", 0, (), ())
    assert not any(block.forced for block in blocks(parts, CharTokenizer("abcdefghijklmn").last_cut))


def test_end_of_text_comes_before_each_document_that_begins() -> None:
    block = Block("train", 3, (b"b", b"ab", b"a"), (False, True, True))
    marked = encode_block(block, CharTokenizer("ab"), mark_documents=True)
    assert (marked.ids.tolist(), marked.starts.tolist()) == ([1, 2, 0, 1, 2, 0], [1, 4])
    plain = encode_block(block, CharTokenizer("ab"), mark_documents=False)
    assert (plain.ids.tolist(), plain.starts.tolist()) == ([1, 0, 1, 0], [1, 3])
