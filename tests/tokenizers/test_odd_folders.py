"""Folders of a tokenizer whose checksums fit, but that no gptlite wrote."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gptlite.errors import DataError, StorageError
from gptlite.tokenizers.base import Tokenizer, load
from gptlite.tokenizers.bpe import BpeTokenizer
from gptlite.tokenizers.char import CharTokenizer

Save = Callable[[Tokenizer], Path]
META = "gptlite_tokenizer.json"
BYTES = [bytes([byte]) for byte in range(256)]


def write_meta(folder: Path, meta: dict[str, Any]) -> None:
    """Write the description with a fingerprint over what it says, as documented: all but two of its entries."""
    decides = {key: value for key, value in meta.items() if key not in ("requested_vocab_size", "fingerprint")}
    digest = hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()
    (folder / META).write_text(json.dumps(meta | {"fingerprint": digest}))


def change(folder: Path, **entries: Any) -> None:
    write_meta(folder, json.loads((folder / META).read_text()) | entries)


def write_ranks(folder: Path, content: bytes, n_tokens: int) -> None:
    (folder / "ranks.tiktoken").write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    change(folder, ranks_sha256=digest, vocab_size=n_tokens + 1, eot_id=n_tokens)


def ranks_of(tokens: list[bytes]) -> bytes:
    return b"".join(base64.b64encode(token) + b" %d\n" % rank for rank, token in enumerate(tokens))


@pytest.mark.parametrize(
    "entries",
    [
        {"characters": 7},
        {"characters": None},
        {"characters": ["a", "b", "c"]},
        {"characters": "acb"},
        {"characters": "aab"},
        {"characters": "ab\ud800"},
        {"vocab_size": 0},
        {"vocab_size": -1},
        {"vocab_size": 1 << 40},
        {"vocab_size": 4.0},
        {"vocab_size": "4"},
        {"eot_id": 1 << 40},
        {"eot_id": None},
        {"kind": None},
        {"kind": ["char"]},
        {"kind": "x" * 10_000},
    ],
)
def test_an_odd_character_tokenizer_is_one_line(saved: Save, entries: dict[str, Any]) -> None:
    folder = saved(CharTokenizer("abc"))
    change(folder, **entries)
    with pytest.raises(DataError, match=rf"^[^\n]*{META}: [^\n]{{20,200}}$"):
        load(folder)


@pytest.mark.parametrize(
    "entries",
    [
        {"vocab_size": 1 << 40, "eot_id": (1 << 40) - 1},
        {"vocab_size": 10, "eot_id": 9},
        {"vocab_size": True},
        {"pattern": 5},
        {"pattern": None},
        {"requested_vocab_size": "many"},
        {"requested_vocab_size": None},
        {"ranks_sha256": None},
        {"ranks_sha256": {}},
    ],
)
def test_an_odd_bpe_is_one_line(saved: Save, bpe: BpeTokenizer, entries: dict[str, Any]) -> None:
    folder = saved(bpe)
    change(folder, **entries)
    with pytest.raises(DataError, match=r"^[^\n]*(gptlite_tokenizer\.json|ranks\.tiktoken): [^\n]{20,300}$"):
        load(folder)


@pytest.mark.parametrize(
    ("content", "n_tokens"),
    [
        (b"", 0),
        (b"\n\n", 2),
        (b"!!!\n", 1),
        (b"YQ==\xff\n", 1),
        (ranks_of(BYTES[1:]), 255),
        (ranks_of([*BYTES, b"ab", b"ab"]), 258),
        (ranks_of([*BYTES, b""]), 257),
    ],
)
def test_odd_ranks_are_one_line(saved: Save, bpe: BpeTokenizer, content: bytes, n_tokens: int) -> None:
    folder = saved(bpe)
    write_ranks(folder, content, n_tokens)
    with pytest.raises(DataError, match=r"^[^\n]*ranks\.tiktoken: the file does not describe a tokenizer: [^\n]*$"):
        load(folder)


def test_a_token_that_no_merge_makes_is_named_when_files_for_other_programs_are_made(
    saved: Save, bpe: BpeTokenizer
) -> None:
    folder = saved(bpe)
    write_ranks(folder, ranks_of([*BYTES, b"abc"]), 257)
    odd = load(folder)
    assert odd.decode(odd.encode("abcd")) == "abcd"
    with pytest.raises(DataError, match=r"^token 256 of the tokenizer has no merge that makes it\. "):
        odd.files()


def test_a_pattern_that_is_no_regular_expression_is_refused(saved: Save, bpe: BpeTokenizer) -> None:
    folder = saved(bpe)
    change(folder, pattern="(")
    with pytest.raises(DataError, match="no regular expression"):
        load(folder).encode("abc")


@pytest.mark.parametrize("depth", [900, 100_000])
def test_a_deeply_nested_description_is_one_line(tmp_path: Path, depth: int) -> None:
    (tmp_path / META).write_text('{"fingerprint": ' + "[" * depth + "]" * depth + "}")
    with pytest.raises(DataError, match=rf"^[^\n]*{META}: [^\n]*$"):
        load(tmp_path)


@pytest.mark.parametrize("name", [META, "ranks.tiktoken"])
def test_a_huge_file_is_not_read_whole(saved: Save, bpe: BpeTokenizer, name: str) -> None:
    folder = saved(bpe)
    os.truncate(folder / name, 1 << 40)  # takes no room
    with pytest.raises(DataError, match=rf"{name}: .* more than [0-9,]+ bytes"):
        load(folder)


@pytest.mark.parametrize("name", [META, "ranks.tiktoken"])
@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_links_and_pipes_are_refused_without_waiting(saved: Save, bpe: BpeTokenizer, name: str, kind: str) -> None:
    folder = saved(bpe)
    moved = (folder / name).rename(folder / "moved")
    if kind == "link":
        (folder / name).symlink_to(moved)
    else:
        os.mkfifo(folder / name)
    with pytest.raises(StorageError, match=rf"{name}: cannot read: "):
        load(folder)
