"""The text of tokens, at once and as a stream."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gptlite.inference.generate import TextStream
from gptlite.tokenizers.bpe import train_bpe
from gptlite.tokenizers.char import CharTokenizer


def streamed(ids, tokenizer, stop=()) -> list[str]:
    """The non-empty pieces of a text stream."""
    stream = TextStream(tokenizer, stop)
    return [piece for piece in [*map(stream.feed, ids), stream.finish()] if piece]


def test_after_a_stop_text_a_stream_adds_nothing():
    stream = TextStream(CharTokenizer("ab"), ["b"])
    assert (stream.feed(0), stream.stopped) == ("a", False)
    assert (stream.feed(1), stream.stopped) == ("", True)
    assert (stream.feed(0), stream.finish()) == ("", "")


def test_the_stop_text_that_begins_first_cuts_even_if_another_is_complete_before():
    tokenizer = CharTokenizer("abc")
    assert "".join(streamed(tokenizer.encode("cbaa"), tokenizer, ["a", "baa"])) == "c"
    assert "".join(streamed(tokenizer.encode("cbab"), tokenizer, ["a", "baa"])) == "cb"


BPE = train_bpe(["naïve café 日本語 text, naïve café"], 280)
ids_of_texts = st.text().map(lambda text: BPE.encode(text).tolist())


@given(st.lists(st.integers(0, BPE.vocab_size - 1), max_size=40) | ids_of_texts)
def test_streamed_text_equals_the_decoded_whole_and_never_shows_half_a_character(ids):
    pieces = streamed(ids, BPE)
    assert "".join(pieces) == BPE.decode(ids)
    assert all(pieces)


@given(st.text(alphabet="abé日", max_size=30), st.lists(st.text(alphabet="abé日", min_size=1, max_size=4), max_size=3))
def test_a_stop_text_cuts_where_it_first_appears_however_the_text_is_cut_into_tokens(text, stop):
    ids = BPE.encode(text).tolist()
    first = min((at for s in stop if (at := text.find(s)) >= 0), default=len(text))
    assert "".join(streamed(ids, BPE, stop)) == text[:first]
