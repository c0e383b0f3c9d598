"""Downloads from a server on this machine."""

from __future__ import annotations

import hashlib
import io
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests

from gptlite import download as module
from gptlite.download import download
from gptlite.errors import StorageError

CONTENT = b"To be, or not to be\n" * 10_000
SHA256 = hashlib.sha256(CONTENT).hexdigest()
Serve = Callable[[dict[str, bytes]], str]


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSES", (0.0, 0.0, 0.0))


def test_a_file_is_saved_under_its_name_and_nothing_else(serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "new/folder/text"
    download([serve({"text": CONTENT}) + "text"], path, SHA256, max_bytes=len(CONTENT), where="a")
    assert path.read_bytes() == CONTENT
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("sent", [CONTENT + b"more", CONTENT[:-1], b""])
def test_another_file_is_refused_and_not_kept(serve: Serve, tmp_path: Path, sent: bytes) -> None:
    with pytest.raises(StorageError, match=rf"^a: http.*/text sent another file .* \(sha256 {SHA256[:12]}\.\.\.\)"):
        download([serve({"text": sent}) + "text"], tmp_path / "d/text", SHA256, max_bytes=len(CONTENT), where="a")
    assert not (tmp_path / "d").exists()


def test_no_more_than_the_largest_size_is_read(serve: Serve, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="sent another file"):
        download([serve({"text": CONTENT}) + "text"], tmp_path / "text", SHA256, max_bytes=100_000, where="a")


def test_a_missing_file_names_the_status_and_where_to_put_it(serve: Serve, tmp_path: Path) -> None:
    place = f"{tmp_path}/d/text"
    with pytest.raises(StorageError, match=rf"\(HTTP status 404\)\. Go online, or put the file at {place} yourself\.$"):
        download([serve({}) + "text"], tmp_path / "d/text", SHA256, max_bytes=1, where="a")
    assert not (tmp_path / "d").exists()


def test_a_server_that_never_answers_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setattr(module, "TIMEOUT", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        rescue = threading.Timer(10, silent.shutdown, [socket.SHUT_RDWR])  # without a time-out: fail, do not hang
        rescue.start()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(StorageError, match=rf"^a: downloading {url} failed \(ReadTimeout\)\. Go online"):
            download([url], tmp_path / "text", SHA256, max_bytes=1, where="a")
        rescue.cancel()


def answer(status: int, headers: dict[str, str], body: bytes = b"") -> requests.Response:
    response = requests.Response()
    response.status_code, response.raw = status, io.BytesIO(body)
    response.headers.update(headers)
    return response


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> dict[str, requests.Response]:
    """Answers by address; what is asked for is removed from it."""
    answers: dict[str, requests.Response] = {}

    def send(_: object, request: requests.PreparedRequest, **__: Any) -> requests.Response:
        found = answers.pop(str(request.url))
        found.url, found.request = str(request.url), request
        return found

    monkeypatch.setattr(requests.adapters.HTTPAdapter, "send", send)
    return answers


@pytest.mark.parametrize("location", ["http://a.test/b", "HTTP://b.test/text", "ftp://a.test/text"])
def test_an_address_with_encryption_is_not_followed_to_one_without(
    network: dict[str, requests.Response], tmp_path: Path, location: str
) -> None:
    network["https://a.test/text"] = answer(302, {"Location": location})
    network["http://a.test/b"] = answer(200, {}, CONTENT)
    with pytest.raises(
        StorageError,
        match=r"^a: downloading https://a\.test/text failed \(redirected from https to an address without encryption\)",
    ):
        download(["https://a.test/text"], tmp_path / "text", SHA256, max_bytes=len(CONTENT), where="a")
    assert list(network) == ["http://a.test/b"]  # it was not asked for
    assert not (tmp_path / "text").exists()


@pytest.mark.parametrize("start", ["https", "http"])
@pytest.mark.parametrize("location", ["https://b.test/text", "/text2"])
def test_other_redirects_are_followed(
    network: dict[str, requests.Response], tmp_path: Path, start: str, location: str
) -> None:
    network[f"{start}://a.test/text"] = answer(302, {"Location": location})
    network[location if location.startswith("http") else f"{start}://a.test{location}"] = answer(200, {}, CONTENT)
    download([f"{start}://a.test/text"], tmp_path / "text", SHA256, max_bytes=len(CONTENT), where="a")
    assert (tmp_path / "text").read_bytes() == CONTENT


def test_a_compressed_answer_is_not_unpacked(network: dict[str, requests.Response], tmp_path: Path) -> None:
    network["https://a.test/text"] = answer(200, {"Content-Encoding": "gzip"}, b"\x1f\x8b")
    with pytest.raises(StorageError, match="sent another file"):
        download(["https://a.test/text"], tmp_path / "text", SHA256, max_bytes=len(CONTENT), where="a")


def test_a_server_that_sends_a_byte_now_and_then_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setattr(module, "TOTAL_TIMEOUT", 0.3)
    ended = threading.Event()

    def drip(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection:
            connection.recv(1000)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
            while not ended.wait(0.02):
                connection.sendall(b"x")

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=drip, args=(server,))
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        try:
            with pytest.raises(StorageError, match=r"failed \(it took more than 0\.3 seconds\)\. Go online"):
                download([url], tmp_path / "text", SHA256, max_bytes=1000, where="a")
        finally:
            ended.set()
            thread.join(10)
