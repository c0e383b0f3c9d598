"""A saved tokenizer opened with transformers' AutoTokenizer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from gptlite.tokenizers.base import Tokenizer, load_named
from gptlite.tokenizers.bpe import BpeTokenizer
from gptlite.tokenizers.char import CharTokenizer
from gptlite.tokenizers.huggingface import find_merges, to_bytes, to_characters

AWKWARD = [
    "",
    "Hello , world . It 's n't \u2019 fine !  ",
    "def f(x):\n    return [x  ,  1234567]\n\n\n",
    "a<|endoftext|>b <|endoftext|>",
    "cafe\u0301 \u0928\u092e\u0938\u094d\u0924\u0947 \u4e2d\u6587 \u2764\ufe0f\U0001f600\r\n\t\x00\x1c\u2028\ufeff",
]
BYTES = tuple(bytes([byte]) for byte in range(256))


def opened(folder: Path) -> Any:
    return AutoTokenizer.from_pretrained(folder)


def assert_equal(ours: Tokenizer, theirs: Any, text: str) -> None:
    ids = ours.encode(text).tolist()
    assert theirs(text).input_ids == ids
    assert theirs.decode(ids) == text


def test_a_char_folder_gives_our_ids_and_text(saved: Callable[[Tokenizer], Path]) -> None:
    ours = CharTokenizer("".join(sorted(set("".join(AWKWARD)))))
    theirs = opened(saved(ours))
    for text in AWKWARD:
        assert_equal(ours, theirs, text)


def test_a_char_folder_refuses_unknown_characters_as_we_do(saved: Callable[[Tokenizer], Path]) -> None:
    with pytest.raises(Exception, match="not found in the vocabulary"):
        opened(saved(CharTokenizer("ab")))("axb")


def test_a_bpe_folder_gives_our_ids_and_text(bpe: BpeTokenizer, saved: Callable[[Tokenizer], Path]) -> None:
    theirs = opened(saved(bpe))

    @settings(max_examples=300)
    @given(st.one_of(st.text(), st.text(alphabet="ab'ts 1\n\t.\u0301\u0928\u094d_(\u2019l")))
    def check(text: str) -> None:
        assert_equal(bpe, theirs, text)

    for text in AWKWARD:
        assert_equal(bpe, theirs, text)
    check()


def test_a_gpt2_folder_gives_our_ids_and_text(
    gpt2_cache: Path, saved: Callable[[Tokenizer], Path], repository: Path
) -> None:
    ours = load_named("gpt2")
    theirs = opened(saved(ours))
    for text in [*AWKWARD, (repository / "gptlite/storage/files.py").read_text("utf-8")]:
        assert_equal(ours, theirs, text)


def test_possessive_counts_are_rewritten_for_the_other_engine(saved: Callable[[Tokenizer], Path]) -> None:
    # cl100k_base's digits: 123|456|7, where the other engine would read {1,3}+ as one long run.
    ranks = (*BYTES, b"12", b"34", b"45", b"56", b"67")
    ours = BpeTokenizer("cl100k_base", r"\p{L}++|\p{N}{1,3}+|[^\p{L}\p{N}]++", ranks, 262, 262)
    assert ours.encode("1234567").tolist() == [256, ord("3"), 258, ord("6"), ord("7")]
    assert_equal(ours, opened(saved(ours)), "1234567")


def test_end_of_text_is_the_token_that_begins_and_ends(bpe: BpeTokenizer, saved: Callable[[Tokenizer], Path]) -> None:
    theirs = opened(saved(bpe))
    assert (theirs.bos_token_id, theirs.eos_token_id, len(theirs)) == (bpe.eot_id, bpe.eot_id, bpe.vocab_size)
    assert theirs.decode([bpe.eot_id, 97], skip_special_tokens=True) == "a"


def test_end_of_text_in_a_text_is_plain_characters_to_the_library_beneath_too(bpe: BpeTokenizer) -> None:
    for ours in (bpe, CharTokenizer("<>defnotx|")):
        theirs = tokenizers.Tokenizer.from_buffer(ours.files()["tokenizer.json"])
        assert theirs.encode("<|endoftext|>").ids == ours.encode("<|endoftext|>").tolist()
        assert (theirs.get_vocab_size(), theirs.token_to_id("<|endoftext|>")) == (ours.vocab_size, ours.eot_id)


def test_the_merge_of_each_token_is_the_pair_left_by_merging_in_order() -> None:
    # bc comes before ab, so abc is a+bc although ab+c would spell it too.
    ranks = (*BYTES, b"bc", b"ab", b"abc", b"abcabc")
    assert list(find_merges(ranks)) == [(b"b", b"c"), (b"a", b"b"), (b"a", b"bc"), (b"abc", b"abc")]


@given(st.binary())
def test_spelling_bytes_as_characters_can_be_undone(token: bytes) -> None:
    assert to_bytes(to_characters(token)) == token
    assert to_characters(token).isprintable()
