from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gptlite.data.preparing import verbatim
from gptlite.data.preparing.verbatim import SHORTEST, VerbatimSearch, covered, stretches

# Few letters, so that they agree for long; of one, two and four bytes that begin or end alike.
texts = st.text("aé\xe8😀😁", max_size=30)


def naive(passage: str, text: bytes, shortest: int) -> list[tuple[int, int]]:
    """By the definition: the longest match from every character on, then those that are in no other."""
    longest = []
    for start in range(len(passage)):
        stops = [stop for stop in range(start + shortest, len(passage) + 1) if passage[start:stop].encode() in text]
        longest += [(start, stop) for stop in stops[-1:]]
    return [(a, b) for a, b in longest if not any(c <= a and b <= d and (a, b) != (c, d) for c, d in longest)]


def found_in(text: bytes, passages: list[str], piece: int = 1000) -> list[list[tuple[int, int]]]:
    search = VerbatimSearch(passages)
    for start in range(0, len(text), piece):
        search.feed(text[start : start + piece])
    return [stretches(p, lengths) for p, lengths in zip(passages, search.lengths(), strict=True)]


@settings(max_examples=150)
@given(st.lists(texts, max_size=4), st.lists(texts, max_size=4), st.integers(1, 20), st.integers(8, 12))
def test_matches_equal_those_of_a_naive_search_however_the_text_is_cut(passages, documents, piece, shortest):
    # Parts of the text among the passages, so that there is something to find.
    passages = [*passages, *(document[2:] + "é" for document in documents)]
    text = b"\xff".join(document.encode() for document in documents)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verbatim, "SHORTEST", shortest)
        assert found_in(text, passages, piece) == [naive(p, text, shortest) for p in passages]


def test_matches_in_a_longer_text_equal_those_of_a_naive_search():
    words = ["the cat ", "a dog ", "sat on ", "ran to ", "the mat. ", "the hill.\n"]
    rng = np.random.default_rng(0)
    text, *passages = ("".join(rng.choice(words, n)) for n in (1500, 40, 40, 40))
    assert SHORTEST == 20
    assert found_in(text.encode(), passages, 3000) == [naive(p, text.encode(), 20) for p in passages]


def test_matches_at_the_ends_of_documents_are_found_and_none_crosses_two_documents():
    first, last = "the first words of all", "the last words of all"
    across = first[-12:] + last[:12]
    assert found_in(f"{first}\0{last}".encode().replace(b"\0", b"\xff"), [f"{first}|{last}", across]) == [
        [(0, 22), (23, 44)],
        [],
    ]


def test_hash_collisions_give_no_false_matches(monkeypatch):
    monkeypatch.setattr(verbatim, "_TABLE_BITS", 1)
    assert found_in(b"abcdefghijklmnopqrst" + b"ABCDEFGHIJKLMNOPQRSTu", ["ABCDEFGHIJKLMNOPQRSTuv"]) == [[(0, 21)]]


@pytest.mark.parametrize("passages", [[], [""], ["short"], ["nineteen characters"]])
def test_passages_below_the_shortest_match_are_not_found(passages):
    assert found_in(b"nineteen characters are short", passages) == [[] for _ in passages]
    assert found_in(b"", passages) == [[] for _ in passages]


def test_a_partly_matching_character_does_not_count():
    (found,) = found_in("twenty characters!!!😁".encode(), ["twenty characters!!!😀"])
    assert found == [(0, 20)]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 12)), max_size=6))
def test_covered_characters_are_counted_once(pairs):
    spans = sorted((start, start + size) for start, size in pairs)
    found = [b for i, b in enumerate(spans) if all(b[1] > a[1] and b[0] > a[0] for a in spans[:i])]
    assert covered(found) == len({place for start, stop in found for place in range(start, stop)})
