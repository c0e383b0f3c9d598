"""Downloads from a server on this machine."""

from __future__ import annotations

import hashlib
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from gptlite import download as module
from gptlite.download import download
from gptlite.errors import StorageError

CONTENT = b"To be, or not to be\n" * 10_000
SHA256 = hashlib.sha256(CONTENT).hexdigest()
Serve = Callable[[dict[str, bytes]], str]


def test_a_file_is_saved_under_its_name_and_nothing_else(serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "new/folder/text"
    download(serve({"text": CONTENT}) + "text", path, SHA256, max_bytes=len(CONTENT), where="a")
    assert path.read_bytes() == CONTENT
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("sent", [CONTENT + b"more", CONTENT[:-1], b""])
def test_another_file_is_refused_and_not_kept(serve: Serve, tmp_path: Path, sent: bytes) -> None:
    with pytest.raises(StorageError, match=rf"^a: http.*/text sent another file .* \(sha256 {SHA256[:12]}\.\.\.\)"):
        download(serve({"text": sent}) + "text", tmp_path / "d/text", SHA256, max_bytes=len(CONTENT), where="a")
    assert not (tmp_path / "d").exists()


def test_no_more_than_the_largest_size_is_read(serve: Serve, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="sent another file"):
        download(serve({"text": CONTENT}) + "text", tmp_path / "text", SHA256, max_bytes=100_000, where="a")


def test_a_missing_file_names_the_status_and_where_to_put_it(serve: Serve, tmp_path: Path) -> None:
    place = f"{tmp_path}/d/text"
    with pytest.raises(StorageError, match=rf"\(HTTP status 404\)\. Go online, or put the file at {place} yourself\.$"):
        download(serve({}) + "text", tmp_path / "d/text", SHA256, max_bytes=1, where="a")
    assert not (tmp_path / "d").exists()


def test_a_server_that_never_answers_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setattr(module, "TIMEOUT", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        rescue = threading.Timer(10, silent.shutdown, [socket.SHUT_RDWR])  # without a time-out: fail, do not hang
        rescue.start()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(StorageError, match=rf"^a: downloading {url} failed \(ReadTimeout\)\. Go online"):
            download(url, tmp_path / "text", SHA256, max_bytes=1, where="a")
        rescue.cancel()
