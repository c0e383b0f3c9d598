"""Character tokenizers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptlite.errors import DataError, Problem
from gptlite.tokenizers.char import CharTokenizer


def tokenizer_of(*texts: str) -> CharTokenizer:
    return CharTokenizer("".join(sorted(set().union(*texts))))


def test_ids_follow_the_code_points_and_end_of_text_is_last() -> None:
    tokenizer = tokenizer_of("bö\n", "\U0001f600b")
    assert tokenizer.encode("\nbö\U0001f600").tolist() == [0, 1, 2, 3]
    assert (tokenizer.vocab_size, tokenizer.eot_id) == (5, 4)
    assert list(tokenizer.token_bytes()) == [b"\n", b"b", "ö".encode(), "\U0001f600".encode(), b""]


@given(st.lists(st.one_of(st.text(), st.text(alphabet="ab\n")), min_size=1))
def test_decoding_undoes_encoding_of_text_and_its_utf8(texts: list[str]) -> None:
    tokenizer = tokenizer_of(*texts)
    for text in texts:
        ids = tokenizer.encode(text)
        assert tokenizer.encode(text.encode()).tolist() == ids.tolist()
        assert ids.dtype == np.uint16
        assert ids.shape == (len(text),)
        assert tokenizer.decode(ids) == text


def test_every_unknown_character_is_named_once() -> None:
    with pytest.raises(DataError) as caught:
        CharTokenizer("ab").encode("a\u2603b\U0001f600a\u2603")
    assert caught.value.problems == (
        Problem(
            "the tokenizer does not know '\u2603' (U+2603), '\U0001f600' (U+1F600): it knows 2 characters from its "
            "training text. Change this text, or train on one that has them."
        ),
    )


@pytest.mark.parametrize("code_point", [0, 96, 99, 100, *range(195, 200), 0x10FFFF, 0xDCFF])
def test_code_points_beside_and_far_from_the_known_ones_and_lone_surrogates_are_unknown(code_point: int) -> None:
    with pytest.raises(DataError, match=f"does not know .* .U.{code_point:04X}.:"):
        CharTokenizer("ab").encode(f"a{chr(code_point)}")


def test_of_many_unknown_characters_five_are_named() -> None:
    with pytest.raises(DataError, match=r"'1'.*'5'.* and 4 more: it knows") as caught:
        CharTokenizer("ab").encode("a123456789987654321")
    assert "'6'" not in str(caught.value)


def test_a_tokenizer_of_no_text_knows_nothing() -> None:
    tokenizer = tokenizer_of("")
    assert tokenizer.encode("").tolist() == []
    with pytest.raises(DataError, match="0 characters"):
        tokenizer.encode("a")
