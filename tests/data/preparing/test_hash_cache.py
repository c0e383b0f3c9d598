from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import pytest

from gptlite.config.schema import DataSection, TokenizerSection
from gptlite.data.preparing import fingerprint
from gptlite.data.preparing.fingerprint import HashCache, compute_fingerprint
from gptlite.errors import DataError


@pytest.fixture(autouse=True)
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trust files that were written just now."""
    monkeypatch.setattr(fingerprint, "_SETTLED_NS", -1)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Every file whose content is hashed."""
    seen: list[Path] = []
    real = fingerprint._hash_file

    def counting(path: Path) -> str:
        seen.append(path)
        return real(path)

    monkeypatch.setattr(fingerprint, "_hash_file", counting)
    return seen


def test_an_unchanged_file_is_read_once(tmp_path: Path, reads: list[Path]) -> None:
    book = tmp_path / "book.txt"
    book.write_text("text")
    for _ in range(3):
        cache = HashCache(tmp_path / "cache")
        assert cache.sha256(book) == hashlib.sha256(b"text").hexdigest()
        cache.save()
    assert reads == [book]


def test_a_change_of_equal_length_and_mtime_is_noticed(tmp_path: Path) -> None:
    book = tmp_path / "book.txt"
    book.write_text("text")
    cache = HashCache(tmp_path)
    first = cache.sha256(book)
    before = book.stat()
    time.sleep(0.02)
    book.write_text("Text")
    os.utime(book, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert cache.sha256(book) != first


def test_a_file_written_just_now_is_not_trusted(
    tmp_path: Path, reads: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(fingerprint, "_hash_file", lambda path: str(reads.append(path)))
    book = tmp_path / "book.txt"
    book.write_text("text")
    cache = HashCache(tmp_path)
    assert cache.sha256(book) == cache.sha256(book)
    assert len(reads) == 2


def test_of_a_binary_file_in_a_folder_only_the_head_is_read(tmp_path: Path, reads: list[Path]) -> None:
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts/b").write_bytes(b"\1\0\2")
    (tmp_path / "texts/t").write_bytes("wide".encode("utf-16"))
    compute_fingerprint(DataSection(source=str(tmp_path / "texts"), dir=str(tmp_path)), TokenizerSection())
    assert reads == [tmp_path / "texts/t"]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"files": 3}', b"\xff", b"[" * 100_000, None])
def test_a_damaged_cache_costs_only_time(tmp_path: Path, content: bytes | None) -> None:
    (tmp_path / "t").write_text("text")
    digest = hashlib.sha256(b"text").hexdigest()
    cache = HashCache(tmp_path)
    cache.sha256(tmp_path / "t")
    cache.save()
    path = tmp_path / fingerprint.CACHE_FILE
    path.write_bytes(path.read_bytes().replace(digest.encode(), b"0" * 64) if content is None else content)
    cache = HashCache(tmp_path)
    assert cache.sha256(tmp_path / "t") == digest
    cache.save()
    assert HashCache(tmp_path)._entries


def test_missing_files_are_forgotten_and_errors_name_them(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    (tmp_path / "b").write_text("b")
    cache = HashCache(tmp_path)
    cache.sha256(tmp_path / "a")
    (tmp_path / "a").unlink()
    cache.sha256(tmp_path / "b")
    cache.save()
    assert list(HashCache(tmp_path)._entries) == [f"any:{tmp_path / 'b'}"]
    with pytest.raises(DataError, match=r"a: the file cannot be read \(No such file or directory\)\. "):
        cache.sha256(tmp_path / "a")
