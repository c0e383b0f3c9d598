"""Building, saving and loading tokenizers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from gptlite.config.schema import TokenizerSection
from gptlite.errors import DataError
from gptlite.tokenizers.base import Tokenizer, build, fingerprint_inputs, label, labels, load, readable
from gptlite.tokenizers.bpe import BpeTokenizer, train_bpe
from gptlite.tokenizers.char import CharTokenizer

Save = Callable[[Tokenizer], Path]
KINDS = ["char", "bpe"]
BYTES = [bytes([byte]) for byte in range(256)]


@pytest.fixture
def made(request: pytest.FixtureRequest, bpe: BpeTokenizer) -> Tokenizer:
    return bpe if request.param == "bpe" else CharTokenizer("\n emostx\u00e9\U0001f600")


def unread() -> Iterable[str]:
    raise AssertionError("this text must not be read")


def test_char_knows_all_characters_and_bpe_learns_from_the_training_texts_alone() -> None:
    char = build(TokenizerSection(kind="char"), "abc", unread)
    assert char.decode(range(3)) == "abc"
    bpe = build(TokenizerSection(kind="bpe", vocab_size=300), "", lambda: ["ab ab ab abc"])
    assert (bpe.kind, bpe.vocab_size, bpe.requested_vocab_size) == ("bpe", 259, 300)
    assert build(TokenizerSection(), "", lambda: ["ab ab"]).requested_vocab_size == 4096


def test_a_named_encoding_reads_no_text(gpt2_cache: Path) -> None:
    assert build(TokenizerSection(kind="gpt2"), "", unread).eot_id == 50256


def test_fingerprint_inputs_differ_between_different_tokenizers() -> None:
    sections = [TokenizerSection(kind=kind) for kind in ("char", "bpe", "gpt2", "cl100k_base")]
    sections.append(TokenizerSection(kind="bpe", vocab_size=300))
    assert len({json.dumps(fingerprint_inputs(section)) for section in sections}) == 5
    assert fingerprint_inputs(TokenizerSection(kind="bpe", vocab_size=4096)) == fingerprint_inputs(
        TokenizerSection(kind="bpe")
    )


@pytest.mark.parametrize("made", KINDS, indirect=True)
def test_a_saved_tokenizer_comes_back_equal(made: Tokenizer, saved: Save) -> None:
    loaded = load(saved(made))
    assert loaded.files() == made.files() == made.files()
    for name in ("kind", "vocab_size", "requested_vocab_size", "eot_id", "fingerprint"):
        assert getattr(loaded, name) == getattr(made, name)
    assert loaded.encode("some text\n").tolist() == made.encode("some text\n").tolist()
    assert loaded.decode(range(loaded.vocab_size)) == made.decode(range(made.vocab_size))


def test_fewer_merges_than_asked_for_are_remembered_and_change_no_fingerprint(saved: Save) -> None:
    few, exact = train_bpe(["ab ab"], 300), train_bpe(["ab ab"], 258)
    assert few.fingerprint == exact.fingerprint
    assert load(saved(few)).requested_vocab_size == 300


def test_other_characters_merges_or_patterns_have_other_fingerprints(bpe: BpeTokenizer) -> None:
    swapped = (*bpe.ranks[:-2], bpe.ranks[-1], bpe.ranks[-2])
    others = [
        CharTokenizer("ab"),
        CharTokenizer("ac"),
        bpe,
        BpeTokenizer("bpe", bpe.pattern, swapped, 400, 400),
        BpeTokenizer("bpe", r"\w+|\W+", bpe.ranks, 400, 400),
    ]
    assert len({other.fingerprint for other in others}) == len(others)


@pytest.mark.parametrize("made", KINDS, indirect=True)
@pytest.mark.parametrize("wrong", [-1, 1000])
def test_an_id_outside_the_vocabulary_is_refused(made: Tokenizer, wrong: int) -> None:
    with pytest.raises(DataError, match=rf"^{wrong} is not an id of this tokenizer, which has 0 to {made.eot_id}\."):
        made.decode([0, wrong])


@pytest.mark.parametrize(
    ("piece", "shown", "on_one_line"),
    [
        (b" the", " the", "␣the"),
        (b"a\n\tb", "a\n\tb", "a↵⇥b"),
        ("日".encode()[:2], r"\xe6\x97", r"\xe6\x97"),
        ("é日".encode()[:-1], r"é\xe6\x97", r"é\xe6\x97"),
        ("שלום".encode(), "שלום", "שלום"),
        ("\u202eabc".encode(), r"\u202eabc", r"\u202eabc"),
        (b"\x00\r\x1b", r"\x00\r\x1b", r"\x00\r\x1b"),
        (b"<b>&\"'", "<b>&\"'", "<b>&\"'"),
    ],
    ids=repr,
)
def test_a_token_is_shown_so_that_it_can_be_read(piece: bytes, shown: str, on_one_line: str) -> None:
    assert readable(piece) == shown
    assert label(piece) == on_one_line


def test_ids_without_text_say_so() -> None:
    pieces = [b"a", b"", b""]
    assert labels(pieces, [2, 0, 1, 0], end=2) == {0: "a", 1: "no text", 2: "end of text"}


def test_a_token_that_no_merge_makes_is_named_when_files_for_other_programs_are_made(
    bpe: BpeTokenizer,
) -> None:
    odd = BpeTokenizer("bpe", bpe.pattern, (*BYTES, b"abc"), 258, 258)
    assert odd.decode(odd.encode("abcd")) == "abcd"
    with pytest.raises(DataError, match=r"^token 256 of the tokenizer has no merge that makes it\. "):
        odd.files()
