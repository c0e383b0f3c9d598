"""tiktoken's named encodings, offline."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import requests
from tiktoken.load import read_file_cached
from tiktoken_ext import openai_public

from gptlite.errors import StorageError
from gptlite.tokenizers import named
from gptlite.tokenizers.base import Tokenizer, load
from gptlite.tokenizers.named import load_named

FILES = {
    "gpt2": ["6d1cbeee0f20b3d9449abfede4726ed8212e3aee", "6c7ea1a7e38e3a7f062df639a5b80947f075ffe6"],
    "cl100k_base": ["9b5ad71b2ce5302211f9c61530b329a4922fc6a4"],
    "o200k_base": ["fb374d419588a4632f3f557e76b4b70aebbca790"],
}


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(url: str, timeout: float) -> None:
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
    assert len(caught.value.problems) == len(FILES[kind])
    for line, name in zip(caught.value.problems, FILES[kind], strict=True):
        assert line.startswith(f"tokenizer.kind = {kind}: downloading https://")
        assert line.endswith(
            f" failed (ConnectionError); go online, or put the file as {name} into the folder that "
            f"TIKTOKEN_CACHE_DIR names (now {tmp_path})"
        )
        assert "\n" not in line


def test_a_download_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes the connection and never answers
        rescue = threading.Timer(10, silent.shutdown, [socket.SHUT_RDWR])  # without the limit: fail, do not hang
        rescue.start()
        usual, url = requests.get, f"http://127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
        monkeypatch.setenv("NO_PROXY", "*")
        monkeypatch.setattr(named, "TIMEOUT", 0.1)
        monkeypatch.setitem(openai_public.ENCODING_CONSTRUCTORS, "cl100k_base", lambda: read_file_cached(url))
        with pytest.raises(StorageError, match=r"failed \(ReadTimeout\)"):
            load_named("cl100k_base")
        rescue.cancel()
        assert requests.get is usual


def test_a_file_that_is_there_is_not_asked_for(
    gpt2_cache: Path, offline: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / FILES["gpt2"][0]).write_bytes((gpt2_cache / FILES["gpt2"][0]).read_bytes())
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    with pytest.raises(StorageError, match=FILES["gpt2"][1]) as caught:
        load_named("gpt2")
    assert len(caught.value.problems) == 1


def test_a_damaged_file_in_the_cache_is_never_used(
    offline: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / FILES["cl100k_base"][0]).write_bytes(b"IQ== 0\n")
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    with pytest.raises(StorageError, match=FILES["cl100k_base"][0]):
        load_named("cl100k_base")


@pytest.mark.parametrize(
    ("variables", "now"),
    [
        ({"DATA_GYM_CACHE_DIR": "/one"}, "now /one"),
        ({"DATA_GYM_CACHE_DIR": "/one", "TIKTOKEN_CACHE_DIR": ""}, "now empty, which switches the cache off"),
    ],
)
def test_the_folder_named_is_the_one_that_tiktoken_looks_into(
    variables: dict[str, str], now: str, offline: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TIKTOKEN_CACHE_DIR", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(StorageError) as caught:
        load_named("o200k_base")
    assert caught.value.problems[0].endswith(f"({now})")


def test_a_cache_that_cannot_be_written_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise PermissionError(13, "Permission denied", "/cache/9b5a")

    monkeypatch.setitem(openai_public.ENCODING_CONSTRUCTORS, "cl100k_base", fail)
    with pytest.raises(StorageError, match=r"failed \(Permission denied: /cache/9b5a\)"):
        load_named("cl100k_base")


def test_of_several_special_tokens_only_end_of_text_stays_and_ids_keep_their_gaps(
    monkeypatch: pytest.MonkeyPatch, saved: Callable[[Tokenizer], Path]
) -> None:
    # The shape of cl100k_base: an unused id after the ranks, end-of-text, then more special tokens.
    ranks = {bytes([255 - rank]): rank for rank in range(256)} | {b"ab": 256}
    special = {"<|endoftext|>": 258, "<|fim_prefix|>": 259}
    parts = {"pat_str": r"\w+|\W+", "mergeable_ranks": ranks, "special_tokens": special}
    monkeypatch.setitem(openai_public.ENCODING_CONSTRUCTORS, "cl100k_base", lambda: parts)
    tokenizer = load_named("cl100k_base")
    assert (tokenizer.vocab_size, tokenizer.eot_id) == (259, 258)
    assert tokenizer.encode("ab~").tolist() == [256, 255 - ord("~")]
    assert tokenizer.token_bytes()[256:] == [b"ab", b"", b""]
    loaded = load(saved(tokenizer))
    assert (loaded.vocab_size, loaded.encode("ab~").tolist()) == (259, [256, 255 - ord("~")])
