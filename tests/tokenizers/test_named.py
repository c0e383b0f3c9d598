"""tiktoken's named encodings, offline."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests
import tiktoken.load
from tiktoken_ext import openai_public

from gptlite.errors import StorageError
from gptlite.tokenizers import base
from gptlite.tokenizers.base import Tokenizer, load, load_named

FILES = {
    "gpt2": ["6d1cbeee0f20b3d9449abfede4726ed8212e3aee", "6c7ea1a7e38e3a7f062df639a5b80947f075ffe6"],
    "cl100k_base": ["9b5ad71b2ce5302211f9c61530b329a4922fc6a4"],
    "o200k_base": ["fb374d419588a4632f3f557e76b4b70aebbca790"],
}


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(url: str, **_: object) -> None:
        raise requests.exceptions.ConnectionError("Max retries exceeded\nwith url")

    monkeypatch.setattr(requests, "get", refuse)


def test_gpt2_gives_the_ids_that_its_users_know(gpt2_cache: Path, offline: None) -> None:
    gpt2 = load_named("gpt2")
    assert gpt2.encode("hello world").tolist() == [31373, 995]
    assert gpt2.encode("<|endoftext|>").tolist() == [27, 91, 437, 1659, 5239, 91, 29]
    assert (gpt2.vocab_size, gpt2.eot_id) == (50257, 50256)


def test_a_saved_encoding_needs_neither_cache_nor_network(
    gpt2_cache: Path,
    offline: None,
    saved: Callable[[Tokenizer], Path],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    gpt2 = load_named("gpt2")
    folder = saved(gpt2)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path / "nothing"))
    loaded = load(folder)
    assert loaded.encode("hello world").tolist() == [31373, 995]
    assert (loaded.kind, loaded.fingerprint) == ("gpt2", gpt2.fingerprint)


@pytest.mark.parametrize("kind", FILES)
def test_offline_each_missing_file_is_named_in_one_line(
    kind: str, offline: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    with pytest.raises(StorageError) as caught:
        load_named(kind)
    *lines, last = str(caught.value).splitlines()
    assert len(lines) == len(FILES[kind])
    for line, name in zip(lines, FILES[kind], strict=True):
        assert line.startswith("tokenizer.kind: downloading https://")
        assert line.endswith(f" failed (ConnectionError). Go online, or put the file at {tmp_path}/{name} yourself.")
    assert last == (
        f"tokenizer.kind: the files of {kind} are kept in {tmp_path}. Set TIKTOKEN_CACHE_DIR to keep them elsewhere."
    )


@pytest.mark.parametrize("kind", FILES)
def test_urls_and_checksums_are_those_of_tiktoken(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {}

    def read_file_cached(url: str, sha256: str) -> bytes:
        asked[url] = sha256
        return b"#\n" if url.endswith(".bpe") else b"!"

    monkeypatch.setattr(tiktoken.load, "read_file_cached", read_file_cached)
    with pytest.raises(ValueError, match=r"line|Expecting value"):  # the content is not a vocabulary
        openai_public.ENCODING_CONSTRUCTORS[kind]()
    assert {base._HOST + name: sha256 for name, sha256 in base._FILES[kind].items()} == asked


def test_a_missing_file_is_downloaded_into_the_cache_and_one_that_is_there_is_not(
    gpt2_cache: Path, serve: Callable[[dict[str, bytes]], str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    there, missing = FILES["gpt2"]
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / there).write_bytes((gpt2_cache / there).read_bytes())
    url = serve({"encoder.json": (gpt2_cache / missing).read_bytes()})
    asked = []
    get = requests.get

    def local(address: str, **keys: Any) -> requests.Response:
        asked.append(address)
        return get(url + address.rpartition("/")[2], **keys)

    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(cache))
    monkeypatch.setattr(requests, "get", local)
    assert load_named("gpt2").encode("hello world").tolist() == [31373, 995]
    assert asked == [base._HOST + "gpt-2/encodings/main/encoder.json"]
    assert sorted(path.name for path in cache.iterdir()) == sorted(FILES["gpt2"])


def test_a_damaged_file_in_the_cache_is_never_used(
    offline: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / FILES["cl100k_base"][0]).write_bytes(b"IQ== 0\n")
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    with pytest.raises(StorageError, match=FILES["cl100k_base"][0]):
        load_named("cl100k_base")


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"DATA_GYM_CACHE_DIR": "/one"}, r"the files of o200k_base are kept in /one\. "),
        (
            {"DATA_GYM_CACHE_DIR": "/one", "TIKTOKEN_CACHE_DIR": ""},
            r"^tokenizer\.kind: TIKTOKEN_CACHE_DIR is empty, .* Set it to a folder\.$",
        ),
    ],
)
def test_the_folder_is_the_one_that_tiktoken_uses(
    variables: dict[str, str], message: str, offline: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TIKTOKEN_CACHE_DIR", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(StorageError, match=message):
        load_named("o200k_base")


def test_of_several_special_tokens_only_end_of_text_stays_and_ids_keep_their_gaps(
    monkeypatch: pytest.MonkeyPatch, saved: Callable[[Tokenizer], Path]
) -> None:
    # The shape of cl100k_base: an unused id after the ranks, end-of-text, then more special tokens.
    ranks = {bytes([255 - rank]): rank for rank in range(256)} | {b"ab": 256}
    special = {"<|endoftext|>": 258, "<|fim_prefix|>": 259}
    parts = {"pat_str": r"\w+|\W+", "mergeable_ranks": ranks, "special_tokens": special}
    monkeypatch.setitem(openai_public.ENCODING_CONSTRUCTORS, "cl100k_base", lambda: parts)
    monkeypatch.setattr(base, "_fill_cache", lambda *_: None)
    tokenizer = load_named("cl100k_base")
    assert (tokenizer.vocab_size, tokenizer.eot_id) == (259, 258)
    assert tokenizer.encode("ab~").tolist() == [256, 255 - ord("~")]
    assert tokenizer.token_bytes()[256:] == [b"ab", b"", b""]
    loaded = load(saved(tokenizer))
    assert (loaded.vocab_size, loaded.encode("ab~").tolist()) == (259, [256, 255 - ord("~")])
