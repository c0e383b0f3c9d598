"""Downloads from a server that drops, truncates, stalls, redirects and lies: the right file, or one clear line."""

from __future__ import annotations

import contextlib
import hashlib
import io
import random
import socketserver
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import requests
from file_faults import Killed, stop_after

from gptlite import download as module
from gptlite.download import download
from gptlite.errors import StorageError

CONTENT = random.Random(0).randbytes(200_000)
SIZE = len(CONTENT)
SHA256 = hashlib.sha256(CONTENT).hexdigest()

Answer = Sequence[bytes]  # what is sent; then the connection ends
STALL, DRIP, ENDLESS = b"stall", b"drip", b"endless"  # in place of bytes: nothing more, a byte now and then, no end


class Server(socketserver.ThreadingTCPServer):
    """Gives each request the next answer, and from then on the last. heads: the lines of each request."""

    daemon_threads = allow_reuse_address = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: Sequence[Answer] = ()
        self.heads: list[list[str]] = []
        self.ended = threading.Event()

    def url(self, *answers: Answer) -> str:
        self.answers = answers
        return f"http://127.0.0.1:{self.server_address[1]}/text"

    @property
    def paths(self) -> list[str]:
        return [lines[0].split()[1] for lines in self.heads]


class Handler(socketserver.StreamRequestHandler):
    server: Server

    def handle(self) -> None:
        lines = list(iter(lambda: self.rfile.readline().strip().decode(), ""))
        answer = self.server.answers[min(len(self.server.heads), len(self.server.answers) - 1)]
        self.server.heads.append(lines)
        with contextlib.suppress(OSError):  # the other side hung up
            for sent in answer:
                self.wfile.write(sent if sent not in (STALL, DRIP, ENDLESS) else b"")
                while sent == ENDLESS or (sent == DRIP and not self.server.ended.wait(0.02)):
                    self.wfile.write(CONTENT if sent == ENDLESS else b"x")
                if sent == STALL:
                    self.server.ended.wait()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setattr(module, "PAUSES", (0.0, 0.0))
    monkeypatch.setattr(module, "TIMEOUT", 0.5)
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.ended.set()
        server.shutdown()
        thread.join()


def head(status: str, *lines: str) -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", *lines, "", ""]).encode()


def redirect(location: str, *body: bytes) -> Answer:
    return head("302 Found", f"Location: {location}"), *body


LENGTH, CHUNKED = head("200 OK", f"Content-Length: {SIZE}"), head("200 OK", "Transfer-Encoding: chunked")
GOOD, CUT, BUSY = (LENGTH, CONTENT), (LENGTH, CONTENT[: SIZE // 2]), (head("503 Busy", "Content-Length: 5"), b"sorry")
RIGHT: dict[str, Sequence[Answer]] = {
    "nothing is wrong": [GOOD],
    "no length": [(head("200 OK"), CONTENT)],
    "chunks": [(CHUNKED, b"9\r\n", CONTENT[:9], b"\r\n%x\r\n" % (SIZE - 9), CONTENT[9:], b"\r\n0\r\n\r\n")],
    "dropped twice": [CUT, CUT, GOOD],
    "dropped before the answer": [(), GOOD],
    "dropped within a chunk": [(CHUNKED, b"fff\r\nabc"), GOOD],
    "stalled half way": [(*CUT, STALL), GOOD],
    "stalled before the answer": [(STALL,), GOOD],
    "busy": [BUSY, GOOD],
    "redirected": [redirect("/other"), GOOD],
    "redirected with an endless body": [redirect("/other", ENDLESS), GOOD],
}
OTHER = rf"http://\S+/text sent another file than the one expected \(sha256 {SHA256[:12]}\.\.\.\)\. Try again"
REFUSED: dict[str, tuple[Answer, str, int]] = {  # an answer that is always given, the message, the number of requests
    "another file": ((LENGTH, bytes(SIZE)), OTHER, 1),
    "cut off and no length": ((head("200 OK"), CONTENT[:-1]), OTHER, 1),
    "an empty file": ((head("200 OK", "Content-Length: 0"),), OTHER, 1),
    "the file and more": ((head("200 OK"), CONTENT + b"x"), OTHER, 1),
    "without end": ((head("200 OK"), ENDLESS), OTHER, 1),
    "compressed": ((head("200 OK", "Content-Encoding: gzip"), b"\x1f\x8b"), OTHER, 1),
    "missing": ((head("404 Not Found"),), r"failed \(HTTP status 404\)\. Go online", 1),
    "always busy": (BUSY, r"failed \(HTTP status 503\)\. Go online", 3),
    "always dropped": ((), r"failed \(the connection was lost\)\. Go online", 3),
    "always stalled": ((*CUT, STALL), r"failed \(no answer\)\. Go online", 3),
    "not HTTP": ((b"hello\r\n\r\n",), r"failed \(the connection was lost\)\. Go online", 3),
    "a redirect to itself": (redirect("/text"), r"failed \(TooManyRedirects\)", 31),
    "a redirect to a file": (redirect("file:///etc/passwd"), r"failed \(No connection adapters", 1),
}


def get(url: str, path: Path, **keys: Any) -> None:
    download([url], path, SHA256, **({"max_bytes": SIZE, "where": "a"} | keys))


@pytest.mark.parametrize("case", RIGHT)
def test_it_ends_in_the_right_file(server: Server, tmp_path: Path, case: str) -> None:
    path, lines = tmp_path / "new/folder/text", list[str]()
    get(url := server.url(*RIGHT[case]), path, say=lines.append)
    assert path.read_bytes() == CONTENT
    assert list(path.parent.iterdir()) == [path]
    assert all("Accept-Encoding: identity" in head for head in server.heads)
    assert len(server.heads) == len(RIGHT[case])
    assert lines[0] == f"downloading {url}"
    assert len(lines) == len(RIGHT[case]) - case.startswith("redirected")


@pytest.mark.parametrize("case", REFUSED)
def test_it_ends_in_one_line_and_nothing_is_left(server: Server, tmp_path: Path, case: str) -> None:
    answer, message, asked = REFUSED[case]
    path = tmp_path / "d/text"
    with pytest.raises(StorageError, match=rf"^a: .*{message}.*, or put the file at {path} yourself\.$") as caught:
        get(server.url(answer), path)
    assert "\n" not in str(caught.value)
    assert len(server.heads) == asked
    assert list(tmp_path.iterdir()) == []


def test_a_byte_now_and_then_is_given_up(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TOTAL_TIMEOUT", 0.3)
    with pytest.raises(StorageError, match=r"failed \(it took more than 0\.3 seconds\)\. Go online"):
        get(server.url((LENGTH, DRIP)), tmp_path / "text")


def test_the_next_address_is_asked(server: Server, tmp_path: Path) -> None:
    url = server.url(CUT, CUT, CUT, GOOD)
    lines: list[str] = []
    download([url, url + "2"], tmp_path / "text", SHA256, max_bytes=SIZE, where="a", say=lines.append)
    assert (tmp_path / "text").read_bytes() == CONTENT
    assert server.paths == ["/text"] * 3 + ["/text2"]
    lost = "the connection was lost; trying again"
    assert lines == [f"downloading {url}", lost, lost, f"downloading {url}2"]


def test_every_address_that_failed_is_named_on_one_line(server: Server, tmp_path: Path) -> None:
    url = server.url((head("404 Not Found"),), (LENGTH, bytes(SIZE)))
    with pytest.raises(StorageError) as caught:
        download([url, url + "2"], tmp_path / "text", SHA256, max_bytes=SIZE, where="a")
    assert str(caught.value) == (
        f"a: downloading {url} failed (HTTP status 404); {url}2 sent another file than the one expected (sha256 "
        f"{SHA256[:12]}...). Try again, or put the file at {tmp_path}/text yourself."
    )


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
    message = r"https://a\.test/text failed \(redirected from https to an address without encryption\)"
    with pytest.raises(StorageError, match=message):
        get("https://a.test/text", tmp_path / "text")
    assert list(network) == ["http://a.test/b"]  # it was not asked for


def test_a_kill_at_any_file_operation_leaves_the_file_or_nothing_under_its_name(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = server.url(GOOD)
    with monkeypatch.context() as patch:
        operations = stop_after(10**9, patch)
        get(url, tmp_path / "undisturbed/text")
    for limit in range(len(operations)):
        path = tmp_path / f"{limit}/text"
        with monkeypatch.context() as patch:
            stop_after(limit, patch)
            with pytest.raises(Killed):
                get(url, path)
        assert not path.exists() or path.read_bytes() == CONTENT
        get(url, path)
        assert path.read_bytes() == CONTENT


def test_offline_the_file_and_its_place_are_named_and_nobody_is_asked(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, path = server.url(GOOD), tmp_path / "d/text"
    for value in ("1", "yes"):
        monkeypatch.setenv("GPTLITE_OFFLINE", value)
        with pytest.raises(StorageError) as caught:
            get(url, path)
        assert str(caught.value) == (
            f"a: downloads are forbidden (--offline, GPTLITE_OFFLINE=1). Put the file {url} at {path}."
        )
    assert server.heads == []
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv("GPTLITE_OFFLINE", "0")
    get(url, path)
    assert path.read_bytes() == CONTENT
