"""Building, saving and loading tokenizers; decoding ids one at a time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptlite.config.schema import TokenizerSection
from gptlite.errors import DataError, StorageError
from gptlite.tokenizers.base import StreamDecoder, Tokenizer, build, fingerprint_inputs, load
from gptlite.tokenizers.bpe import BpeTokenizer, train_bpe
from gptlite.tokenizers.char import CharTokenizer
from gptlite.tokenizers.folder import tokenizer_fingerprint

Save = Callable[[Tokenizer], Path]
KINDS = ["char", "bpe"]


@pytest.fixture
def made(request: pytest.FixtureRequest, bpe: BpeTokenizer) -> Tokenizer:
    return bpe if request.param == "bpe" else CharTokenizer.of(["some text\n\u00e9\U0001f600"])


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


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda meta: {**meta, "characters": "abd"}, "the file was changed: its fingerprint is "),
        (lambda meta: {**meta, "vocab_size": 5}, "the file was changed: its fingerprint is "),
        (lambda meta: {**meta, "format_version": 2}, "format_version .* 2.* this gptlite reads 1"),
        (
            lambda meta: {**meta, "kind": "x", "fingerprint": tokenizer_fingerprint({**meta, "kind": "x"})},
            "this gptlite knows no tokenizer of kind x. ",
        ),
        (lambda meta: {"kind": "char"}, "the file does not describe a tokenizer"),
        (lambda meta: [], "the file does not describe a tokenizer"),
    ],
)
def test_a_description_that_was_changed_is_refused(
    change: Callable[[dict[str, object]], object], complaint: str, saved: Save
) -> None:
    path = saved(CharTokenizer("abc")) / "gptlite_tokenizer.json"
    path.write_text(json.dumps(change(json.loads(path.read_text("ascii")))), "ascii")
    with pytest.raises(DataError, match=rf"gptlite_tokenizer\.json: {complaint}"):
        load(path.parent)


def test_changed_ranks_are_refused_naming_both_checksums(bpe: BpeTokenizer, saved: Save) -> None:
    folder = saved(bpe)
    ranks = folder / "ranks.tiktoken"
    ranks.write_bytes(ranks.read_bytes().replace(b" 300\n", b" 301\n"))
    recorded = json.loads((folder / "gptlite_tokenizer.json").read_text("ascii"))["ranks_sha256"]
    with pytest.raises(DataError, match=rf"ranks\.tiktoken: .* sha256 is [0-9a-f]{{64}}, .* it is {recorded}\. "):
        load(folder)


@pytest.mark.parametrize("name", ["gptlite_tokenizer.json", "ranks.tiktoken"])
def test_a_missing_file_is_named(name: str, bpe: BpeTokenizer, saved: Save) -> None:
    folder = saved(bpe)
    (folder / name).unlink()
    with pytest.raises(DataError, match=rf"{name}: the tokenizer needs this file, and it is missing"):
        load(folder)


def test_binary_in_place_of_the_description_is_refused(tmp_path: Path) -> None:
    (tmp_path / "gptlite_tokenizer.json").write_bytes(b"\xff\x00")
    with pytest.raises(DataError, match="the file does not describe a tokenizer"):
        load(tmp_path)


def test_a_description_that_cannot_be_read_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "gptlite_tokenizer.json").mkdir()
    with pytest.raises(
        StorageError, match=r"gptlite_tokenizer\.json: cannot read: it is a folder, a pipe or a device\. Put a file"
    ):
        load(tmp_path)


@pytest.mark.parametrize("made", KINDS, indirect=True)
@pytest.mark.parametrize("wrong", [-1, 1000])
def test_an_id_outside_the_vocabulary_is_refused(made: Tokenizer, wrong: int) -> None:
    with pytest.raises(DataError, match=rf"^{wrong} is not an id of this tokenizer, which has 0 to {made.eot_id}\."):
        made.decode([0, wrong])


@given(st.data())
def test_streamed_text_equals_decoded_text_and_never_holds_half_a_character(
    bpe: BpeTokenizer, data: st.DataObject
) -> None:
    text_ids = st.text().map(lambda text: bpe.encode(text).tolist())
    any_ids = st.lists(st.integers(0, bpe.vocab_size - 1))
    ids = data.draw(st.one_of(text_ids, any_ids))
    decoder = StreamDecoder(bpe)
    assert "".join([*map(decoder.feed, ids), decoder.flush()]) == bpe.decode(ids)


def test_a_character_of_four_bytes_arrives_whole() -> None:
    decoder = StreamDecoder(train_bpe([], 257))
    assert [decoder.feed(byte) for byte in "\U0001f600a".encode()] == ["", "", "", "\U0001f600", "a"]
    assert (decoder.feed(0xF0), decoder.flush()) == ("", "\ufffd")
