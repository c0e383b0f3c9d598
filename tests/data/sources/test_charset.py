# ruff: noqa: RUF001 - other scripts have characters that look like those of ours
from __future__ import annotations

import random
import re
import unicodedata

import pytest

from gptlite.data.sources.charset import decode_pieces, is_binary, likely_encoding
from gptlite.errors import DataError


def decode(raw: bytes, encoding: str) -> str:
    return "".join(decode_pieces([raw], encoding, "none", "f"))


def test_a_byte_order_mark_is_dropped_and_newlines_stay() -> None:
    assert decode(b"\xef\xbb\xbfa\r\nb\rc\n", "utf-8") == "a\r\nb\rc\n"
    assert decode("\ufeffa\ufeff".encode("utf-16-le"), "utf-16-le") == "a\ufeff"


@pytest.mark.parametrize(
    ("raw", "encoding", "message"),
    [
        (
            "na\u00efve\n".encode("cp1252"),
            "utf-8",
            "valid utf-8 at byte 2. It may be cp1252: use data.encoding=cp1252.",
        ),
        (b"t\xe9", "utf-8", "valid utf-8 at byte 1. It may be cp1252: use data.encoding=cp1252."),
        ("hello".encode("utf-16"), "utf-8", "valid utf-8 at byte 0. It may be utf-16: use data.encoding=utf-16."),
        ("\u00e9t\u00e9".encode(), "ascii", "valid ascii at byte 0. It may be utf-8: use data.encoding=utf-8."),
        (
            "\u00e9t\u00e9 \u00e0 No\u00ebl".encode() + b"\xff",
            "utf-8",
            "valid utf-8 at byte 14. Correct the text, or set data.encoding to its encoding.",
        ),
        (b"\x89PNG\r\n\x1a\n\0\0\0\r", "utf-8", "binary data: it has NUL characters. Choose a text file."),
        (b"a+2AA-", "utf-7", "the character U+D800 is half of a surrogate pair. Correct the text."),
    ],
)
def test_invalid_text_is_refused_with_its_first_invalid_byte_and_advice(
    raw: bytes, encoding: str, message: str
) -> None:
    with pytest.raises(DataError, match=f"^f: .*{re.escape(message)}$"):
        decode(raw, encoding)


def test_nul_in_a_wide_encoding_is_binary_only_as_a_character() -> None:
    assert decode("ab".encode("utf-16-le"), "utf-16-le") == "ab"
    with pytest.raises(DataError, match="binary data"):
        decode("a\0b".encode("utf-16-le"), "utf-16-le")


def test_nul_makes_a_file_binary_unless_it_begins_as_utf16_does() -> None:
    assert is_binary(b"two words\0", "utf-8")
    assert not is_binary("two words\n".encode("utf-16"), "utf-8")
    assert not is_binary("two words\n".encode("utf-16-le"), "utf-16-le")


OTHER_SCRIPTS = {
    "cp1251": "Однажды весною, в час небывало жаркого заката, в Москве, на прудах, появились два гражданина. "
    "Первый из них, одетый в летнюю серенькую пару, был маленького роста, упитан, лыс.",
    "koi8_r": "Все счастливые семьи похожи друг на друга, каждая несчастливая семья несчастлива по-своему. "
    "Все смешалось в доме Облонских. Жена узнала, что муж был в связи с бывшею в их доме француженкою.",
    "gb18030": "满纸荒唐言，一把辛酸泪。都云作者痴，谁解其中味。此开卷第一回也。作者自云：因曾历过一番梦幻之后，"
    "故将真事隐去，而借通灵之说，撰此石头记一书也。",
    "cp932": "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。何でも薄暗いじめじめした所で"
    "ニャーニャー泣いていた事だけは記憶している。",
}


@pytest.mark.parametrize("encoding", OTHER_SCRIPTS)
def test_the_encoding_of_another_script_is_guessed(encoding: str) -> None:
    text = OTHER_SCRIPTS[encoding]
    guess = likely_encoding(text.encode(encoding))
    assert guess is not None
    assert text.encode(encoding).decode(guess) == text


ENCODINGS = ("utf-8", "utf-16-le", "utf-7", "cp1252", "cp1251", "gbk", "gb18030", "shift_jis")


def test_text_in_pieces_is_the_text_of_the_whole_file() -> None:
    rng = random.Random(0)
    for _ in range(4000):
        encoding, errors = rng.choice(ENCODINGS), rng.choice(["strict", "replace"])
        text = "".join(
            rng.choice("abc \n日本é😀яü\u0301\u1100\u1161e\u0300\ufeff") for _ in range(rng.randrange(1, 12))
        )
        raw = bytearray(text.encode(encoding, "ignore"))
        if raw and rng.random() < 0.4:
            raw[rng.randrange(len(raw))] = rng.randrange(1, 256)
        ends = sorted(rng.randrange(4, len(raw)) for _ in range(rng.randrange(4))) if len(raw) > 4 else []
        pieces = [bytes(raw[a:b]) for a, b in zip([0, *ends], [*ends, len(raw)], strict=True)]
        normalize = rng.choice(["none", "nfc"])
        try:
            expected = bytes(raw).decode(encoding, errors).removeprefix("\ufeff")
        except UnicodeDecodeError as error:
            place = rf"at byte {error.start}\."
            with pytest.raises(DataError, match=f"{place}|has NUL"):
                list(decode_pieces(pieces, encoding, normalize))
            continue
        if any(character == "\0" or "\ud800" <= character <= "\udfff" for character in expected):
            continue  # refused
        expected = unicodedata.normalize("NFC", expected) if normalize == "nfc" else expected
        found = list(decode_pieces(pieces, encoding, normalize, errors=errors))
        assert "".join(found) == expected
        assert "" not in found
