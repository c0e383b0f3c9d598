from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gptlite.inference.memorization import SHORTEST, find_verbatim

# Few words, so that windows are found; characters of one, two, three and four bytes that begin or end alike.
texts = st.lists(st.sampled_from(["aé è日 😁😀", "the cat sat ", "日日日", "a"]), max_size=12).map("".join)


def naive(passage: str, documents: list[str]) -> list[tuple[int, int]]:
    """By the definition: every character in a window that is in a document, in runs."""
    starts = [at for at in range(len(passage) - 19) if any(passage[at : at + 20] in text for text in documents)]
    copied = "".join("x" if any(at <= place < at + 20 for at in starts) else " " for place in range(len(passage)))
    edges = [at for at in range(len(copied) + 1) if f" {copied} "[at] != f" {copied} "[at + 1]]
    return list(zip(edges[::2], edges[1::2], strict=True))


def found_in(text: bytes, passages: list[str], piece: int = 1000) -> list[list[tuple[int, int]]]:
    return find_verbatim(passages, (text[start : start + piece] for start in range(0, len(text), piece)))


@settings(max_examples=150)
@given(st.lists(texts, max_size=3), st.lists(texts, max_size=3), st.integers(1, 90))
def test_copied_parts_equal_those_of_a_naive_search_however_the_text_is_cut(passages, documents, piece):
    # Parts of the text among the passages, so that there is something to find.
    passages = [*passages, *(document[2:] + "é" for document in documents)]
    text = b"\xff".join(document.encode() for document in documents)
    assert SHORTEST == 20
    assert found_in(text, passages, piece) == [naive(passage, documents) for passage in passages]


def test_parts_at_the_ends_of_documents_are_found_and_none_crosses_two_documents():
    first, last = "the first words of all", "the last words of all"
    text = f"{first}\0{last}".encode().replace(b"\0", b"\xff")
    assert found_in(text, [f"{first}|{last}", first[-12:] + last[:12]]) == [[(0, 22), (23, 44)], []]


def test_matches_in_a_longer_text_equal_those_of_a_naive_search():
    words = ["the cat ", "a dog ", "sat on ", "ran to ", "the mat. ", "the hill.\n"]
    rng = np.random.default_rng(0)
    text, *passages = ("".join(rng.choice(words, n)) for n in (1500, 40, 40, 40))
    found = found_in(text.encode(), passages, 3000)
    assert found == [naive(passage, [text]) for passage in passages]
    assert any(found)


@pytest.mark.parametrize("passages", [[], [""], ["short"], ["nineteen characters"]])
def test_passages_shorter_than_a_window_are_not_found(passages):
    assert found_in(b"nineteen characters are short", passages) == [[] for _ in passages]
