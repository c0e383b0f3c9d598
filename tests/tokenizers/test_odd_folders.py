"""Descriptions of tokenizers whose seals hold, but that no gptlite wrote."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gptlite.errors import Damaged, DataError
from gptlite.storage.sealed_json import read_sealed, write_sealed
from gptlite.tokenizers.base import Tokenizer, load
from gptlite.tokenizers.bpe import BpeTokenizer
from gptlite.tokenizers.char import CharTokenizer
from gptlite.tokenizers.folder import META_FILE

Save = Callable[[Tokenizer], Path]
BYTES = [bytes([byte]) for byte in range(256)]


def change(folder: Path, **entries: Any) -> None:
    write_sealed(folder / META_FILE, read_sealed(folder / META_FILE) | entries)


def ranks_of(tokens: list[bytes]) -> str:
    return " ".join(base64.b64encode(token).decode() for token in tokens)


@pytest.mark.parametrize(
    "entries",
    [
        *({"characters": value} for value in (7, None, ["a", "b", "c"], "acb", "aab", "ab\ud800")),
        *({"kind": value} for value in (None, ["char"], "x" * 10_000, "bpe")),
    ],
)
def test_an_odd_character_tokenizer_is_one_line(saved: Save, entries: dict[str, Any]) -> None:
    folder = saved(CharTokenizer("abc"))
    change(folder, **entries)
    with pytest.raises(Damaged, match=rf"^[^\n]*{META_FILE}: the file does not describe a tokenizer: [^\n]*$"):
        load(folder)


@pytest.mark.parametrize(
    "entries",
    [
        *({"vocab_size": value} for value in (1 << 40, 10, True, 400.0, "400", 399, None)),
        *({"pattern": value} for value in (5, None)),
        *({"requested_vocab_size": value} for value in ("many", None)),
        *({"ranks": value} for value in (None, [], "", " ", "!!!", "YQ==\xff", ranks_of(BYTES[1:]))),
        {"ranks": ranks_of([*BYTES, b"ab", b"ab"]), "vocab_size": 259},
        {"ranks": ranks_of([*BYTES, b""]), "vocab_size": 258},
    ],
)
def test_an_odd_bpe_is_one_line(saved: Save, bpe: BpeTokenizer, entries: dict[str, Any]) -> None:
    folder = saved(bpe)
    change(folder, **entries)
    with pytest.raises(Damaged, match=rf"^[^\n]*{META_FILE}: the file does not describe a tokenizer: [^\n]*$"):
        load(folder)


def test_a_token_that_no_merge_makes_is_named_when_files_for_other_programs_are_made(
    saved: Save, bpe: BpeTokenizer
) -> None:
    folder = saved(bpe)
    change(folder, ranks=ranks_of([*BYTES, b"abc"]), vocab_size=258)
    odd = load(folder)
    assert odd.decode(odd.encode("abcd")) == "abcd"
    with pytest.raises(DataError, match=r"^token 256 of the tokenizer has no merge that makes it\. "):
        odd.files()


def test_a_pattern_that_is_no_regular_expression_is_refused(saved: Save, bpe: BpeTokenizer) -> None:
    folder = saved(bpe)
    change(folder, pattern="(")
    with pytest.raises(DataError, match="no regular expression"):
        load(folder).encode("abc")
