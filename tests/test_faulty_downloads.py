"""Downloads from a server that drops, truncates, stalls, redirects and lies: the right file, or one clear line."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import random
import re
import signal
import socket
import socketserver
import struct
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from file_faults import Killed, stop_after

from gptlite import download as module
from gptlite.download import download
from gptlite.errors import ConfigError, StorageError
from gptlite.storage import files

CONTENT = random.Random(0).randbytes(200_000)  # nowhere like itself, so that a wrong offset shows
SIZE = len(CONTENT)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
PIECE = 1 << 14  # what is lost of a piece that is cut off

# An answer gets the first byte that is asked for, None for all, and yields what is sent; then the connection ends.
Answer = Callable[[int | None], Iterator[bytes]]
STALL, RESET = b"stall", b"reset"  # in place of bytes


class Server(socketserver.ThreadingTCPServer):
    """Gives each request the next answer, and from then on the last. starts: what was asked for, None for all of it."""

    daemon_threads = allow_reuse_address = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: Sequence[Answer] = ()
        self.starts: list[int | None] = []
        self.paths: list[str] = []
        self.heads: list[list[str]] = []
        self.ended = threading.Event()

    def url(self, *answers: Answer) -> str:
        self.answers = answers
        return f"http://127.0.0.1:{self.server_address[1]}/text"


class Handler(socketserver.StreamRequestHandler):
    server: Server

    def handle(self) -> None:
        lines = list(iter(lambda: self.rfile.readline().strip().decode(), ""))
        found = re.search(r"Range: bytes=(\d+)-$", "\n".join(lines), re.MULTILINE)
        start = None if found is None else int(found[1])
        number = len(self.server.starts)
        self.server.starts.append(start)
        self.server.paths.append(lines[0].split()[1])
        self.server.heads.append(lines)
        with contextlib.suppress(OSError):  # the other side hung up
            for sent in self.server.answers[min(number, len(self.server.answers) - 1)](start):
                if sent is STALL:
                    self.server.ended.wait()
                elif sent is RESET:
                    self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                else:
                    self.wfile.write(sent)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setattr(module, "PAUSES", (0.0, 0.0, 0.0))
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.ended.set()
        server.shutdown()
        thread.join()


def head(status: str, *lines: str) -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", *lines, "", ""]).encode()


def part(start: int | None, content: bytes = CONTENT) -> tuple[bytes, bytes]:
    """Head and body of a right answer."""
    if start is None:
        return head("200 OK", f"Content-Length: {SIZE}"), content
    content_range = f"Content-Range: bytes {start}-{SIZE - 1}/{SIZE}"
    return head("206 Partial Content", f"Content-Length: {SIZE - start}", content_range), content[start:]


def good(start: int | None) -> Iterator[bytes]:
    yield from part(start)


def whole(start: int | None) -> Iterator[bytes]:
    """Ignores that a range was asked for."""
    yield from part(None)


def cut(n_bytes: int, *end: bytes) -> Answer:
    """Announces all and sends this many bytes."""

    def answer(start: int | None) -> Iterator[bytes]:
        first, body = part(start)
        yield first + body[:n_bytes]
        yield from end

    return answer


def raw(*sent: bytes) -> Answer:
    return lambda start: iter(sent)


def status(line: str) -> Answer:
    return raw(head(line, "Content-Length: 5"), b"sorry")


def redirect(location: str, *body: bytes) -> Answer:
    return raw(head("302 Found", f"Location: {location}"), *body)


def endless(first: bytes) -> Answer:
    def answer(start: int | None) -> Iterator[bytes]:
        yield first
        while True:
            yield CONTENT

    return answer


def wrong(start: int | None) -> Iterator[bytes]:
    """Another file of this size."""
    yield from part(start, bytes(SIZE))


def shifted(start: int | None) -> Iterator[bytes]:
    """Sends another range than the one that was asked for, and says so."""
    yield from part((start or 0) + 1)


def misplaced(start: int | None) -> Iterator[bytes]:
    """Sends another range than the one that was asked for, and says that it is that one."""
    first, _ = part(start)
    yield first + part(100)[1][: SIZE - (start or 0)]


def packed(start: int | None) -> Iterator[bytes]:
    first, body = part(start)
    yield first.replace(b"\r\n", b"\r\nContent-Encoding: gzip\r\n", 1) + body


def chunks(*sent: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(each), each) for each in sent)


CHUNKED = head("200 OK", "Transfer-Encoding: chunked")
HALF = SIZE // 2
ON, ANYWHERE = "on", "anywhere"  # from where the first answer ended; a reset may discard what was sent
RIGHT: dict[str, tuple[list[Answer], list[int | str | None]]] = {
    "nothing is wrong": ([good], [None]),
    "dropped half way": ([cut(HALF), good], [None, ON]),
    "reset half way": ([cut(HALF, RESET), good], [None, ANYWHERE]),
    "dropped three times": ([cut(HALF // 2)] * 3 + [good], [None, ON, ANYWHERE, ANYWHERE]),
    "dropped before the answer": ([raw(RESET), good], [None, None]),
    "dropped at the end": ([cut(SIZE - 1), good], [None, SIZE // PIECE * PIECE]),
    "stalled half way": ([cut(HALF, STALL), good], [None, ON]),
    "stalled before the answer": ([raw(STALL), good], [None, None]),
    "a length that is too large": (
        [raw(head("200 OK", f"Content-Length: {SIZE + 1}"), CONTENT), good],
        [None, ANYWHERE],
    ),
    "all of it as a part": ([lambda start: good(start or 0)], [None]),
    "no length": ([raw(head("200 OK"), CONTENT)], [None]),
    "chunks": ([raw(CHUNKED, chunks(CONTENT[:9], CONTENT[9:], b""))], [None]),
    "dropped within a chunk": ([raw(CHUNKED, chunks(CONTENT[:HALF]), b"fff\r\nabc"), good], [None, ON]),
    "chunks that are none": ([raw(CHUNKED, chunks(CONTENT[:HALF]), b"what?\r\n"), good], [None, ON]),
    "busy": ([status("503 Service Unavailable"), good], [None, None]),
    "fails once": ([status("500 Internal Server Error"), good], [None, None]),
    "busy when it goes on": ([cut(HALF), status("503 Service Unavailable"), good], [None, ON, ON]),
    "redirected": ([redirect("/other"), good], [None, None]),
    "redirected when it goes on": ([cut(HALF), redirect("/other"), good], [None, ON, ON]),
    "redirected with an endless body": ([endless(head("302 Found", "Location: /other")), good], [None, None]),
    "the range is ignored": ([cut(HALF), whole], [None, ON]),
    "the range is ignored and dropped": ([cut(HALF), lambda _: cut(HALF)(None), good], [None, ON, ON]),
    "the range is refused": ([cut(HALF), status("416 Range Not Satisfiable"), good], [None, ON, None]),
    "another range": ([cut(HALF), shifted, good], [None, ON, None]),
    "stalled within another range": ([cut(HALF), lambda start: iter([part(HALF)[0], STALL]), good], [None, ON, None]),
    "a range without its place": ([cut(HALF), status("206 Partial Content"), good], [None, ON, None]),
    "another range under the right place": ([cut(HALF), misplaced, good], [None, ON, None]),
    "goes on with another file": ([cut(HALF), wrong, good], [None, ON, None]),
    "goes on with compressed bytes": ([cut(HALF), packed, good], [None, ON, None]),
    "goes on without end": ([cut(HALF), endless(head("200 OK")), good], [None, ON, None]),
    "goes on with nothing": ([cut(HALF), status("204 No Content"), good], [None, ON, None]),
}
OTHER = rf"http://\S+/text sent another file than the one expected \(sha256 {SHA256[:12]}\.\.\.\)\. Try again"
LOST = r"failed \(the connection was lost\)\. Go online"
REFUSED: dict[
    str, tuple[Answer, str, int]
] = {  # an answer that is always given, the message, how often it is asked for
    "another file": (wrong, OTHER, 1),
    "cut off and no length": (raw(head("200 OK"), CONTENT[:HALF]), OTHER, 1),
    "cut off with the right length": (raw(head("200 OK", f"Content-Length: {HALF}"), CONTENT[:HALF]), OTHER, 1),
    "a length that is too small": (raw(head("200 OK", "Content-Length: 7"), CONTENT), OTHER, 1),
    "a length that is none": (raw(head("200 OK", "Content-Length: many"), CONTENT[:HALF]), OTHER, 1),
    "an endless body": (endless(head("200 OK")), OTHER, 1),
    "endless chunks": (endless(CHUNKED + b"fffffffff\r\n"), OTHER, 1),
    "compressed bytes": (packed, OTHER, 1),
    "a part that nobody asked for": (shifted, OTHER, 1),
    "cut off within the head": (raw(b"HTTP/1.1 200 OK\r\nConte"), OTHER, 1),
    "nothing": (status("204 No Content"), OTHER, 1),
    "an empty file": (raw(head("200 OK", "Content-Length: 0")), OTHER, 1),
    "missing": (status("404 Not Found"), r"failed \(HTTP status 404\)\. Go online", 1),
    "nothing to go on with": (status("416 Range Not Satisfiable"), r"failed \(HTTP status 416\)\. Go online", 1),
    "always busy": (status("503 Service Unavailable"), r"failed \(HTTP status 503\)\. Go online", 4),
    "always dropped": (raw(), LOST, 4),
    "not HTTP": (raw(b"hello\r\n\r\n"), LOST, 4),
    "a redirect to itself": (redirect("/text"), r"failed \(TooManyRedirects\)", 31),
    "a redirect to nowhere": (redirect("http://"), r"failed \(TooManyRedirects\)", 31),
    "a redirect to half an address": (redirect("http://[::"), r"failed \(InvalidURL\)", 1),
    "a redirect to no address": (
        raw(head("302 Found")[:-2] + b"Location: /\xff\xfe\r\n\r\n"),
        r"failed \(InvalidURL\)",
        1,
    ),
    "a redirect to a host that is too long": (redirect(f"http://{'x' * 70}.test/"), r"failed \(\w+\)", 1),
    "a redirect to a file": (redirect("file:///etc/passwd"), r"failed \(No connection adapters", 1),
}


def get(url: str, path: Path, **keys: Any) -> None:
    download([url], path, SHA256, **({"max_bytes": SIZE, "where": "a"} | keys))


@pytest.mark.parametrize("case", RIGHT)
def test_it_ends_in_the_right_file(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    answers, expected = RIGHT[case]
    if case.startswith("stalled"):
        monkeypatch.setattr(module, "TIMEOUT", 1.0)
    path = tmp_path / "d/text"
    get(server.url(*answers), path)
    assert path.read_bytes() == CONTENT
    assert list(path.parent.iterdir()) == [path]
    assert all("Accept-Encoding: identity" in lines for lines in server.heads)
    assert len(server.starts) == len(expected)
    for start, wanted in zip(server.starts, expected, strict=True):
        if wanted == ON:
            assert start is not None
            limit = HALF // 2 if case == "dropped three times" else HALF
            assert limit - PIECE <= start <= limit
        elif isinstance(wanted, int) or wanted is None:
            assert start == wanted


@pytest.mark.parametrize("case", REFUSED)
def test_it_ends_in_one_line_and_nothing_is_left(server: Server, tmp_path: Path, case: str) -> None:
    answer, message, asked = REFUSED[case]
    path = tmp_path / "d/text"
    with pytest.raises(StorageError, match=rf"^a: .*{message}.*, or put the file at {path} yourself\.$") as caught:
        get(server.url(answer), path)
    assert "\n" not in str(caught.value)
    assert len(server.starts) == asked
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("end", "reason"), [([], "the connection was lost"), ([STALL], "ReadTimeout")])
def test_what_arrived_is_kept_for_the_next_command(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: list[bytes], reason: str
) -> None:
    monkeypatch.setattr(module, "PAUSES", ())
    if end:
        monkeypatch.setattr(module, "TIMEOUT", 1.0)
    with pytest.raises(StorageError, match=rf"^a: downloading http\S+ failed \({reason}\)\. Go online"):
        get(server.url(cut(HALF, *end)), tmp_path / "text")
    (left,) = tmp_path.iterdir()
    assert left.name == ".text.part"
    kept = left.stat().st_size
    assert left.read_bytes() == CONTENT[:kept]
    lines: list[str] = []
    get(server.url(good), tmp_path / "text", say=lines.append)
    assert server.starts == [None, kept]
    assert lines == [f"downloading {server.url(good)}, of which {kept / 1024:.0f} KiB are here"]
    assert [path.name for path in tmp_path.iterdir()] == ["text"]


@pytest.mark.parametrize("kept", [CONTENT, bytes(SIZE), bytes(2 * SIZE), CONTENT[:-1] + b"?", b"", CONTENT[:1]])
@pytest.mark.parametrize("max_bytes", [SIZE, 2 * SIZE + 1])
def test_what_another_process_left_is_only_a_beginning(
    server: Server, tmp_path: Path, kept: bytes, max_bytes: int
) -> None:
    (tmp_path / ".text.part").write_bytes(kept)

    def answer(start: int | None) -> Iterator[bytes]:
        yield from status("416 Range Not Satisfiable")(start) if (start or 0) >= SIZE else good(start)

    get(server.url(answer), tmp_path / "text", max_bytes=max_bytes)
    assert (tmp_path / "text").read_bytes() == CONTENT
    assert [path.name for path in tmp_path.iterdir()] == ["text"]
    if kept == CONTENT and max_bytes == SIZE:
        assert server.starts == []  # it was complete


def test_the_next_address_is_asked_and_continues_the_file(server: Server, tmp_path: Path) -> None:
    url = server.url(cut(HALF), *[raw()] * 3, good)
    lines: list[str] = []
    download([url, url + "2"], tmp_path / "text", SHA256, max_bytes=SIZE, where="a", say=lines.append)
    assert (tmp_path / "text").read_bytes() == CONTENT
    assert server.paths == ["/text"] * 4 + ["/text2"]
    assert server.starts == [None] + [HALF // PIECE * PIECE] * 4
    assert lines.count("the connection was lost; trying again") == 3


def test_every_address_that_failed_is_named_on_one_line(server: Server, tmp_path: Path) -> None:
    url = server.url(status("404 Not Found"), wrong)
    with pytest.raises(StorageError) as caught:
        download([url, url + "2"], tmp_path / "text", SHA256, max_bytes=SIZE, where="a")
    assert str(caught.value) == (
        f"a: downloading {url} failed (HTTP status 404); {url}2 sent another file than the one expected (sha256 "
        f"{SHA256[:12]}...). Try again, or put the file at {tmp_path}/text yourself."
    )


def test_a_download_that_was_killed_is_continued(server: Server, tmp_path: Path) -> None:
    path, partial = tmp_path / "text", tmp_path / ".text.part"
    code = (
        "import sys; from pathlib import Path; from gptlite.download import download\n"
        "download([sys.argv[1]], Path(sys.argv[2]), sys.argv[3], max_bytes=int(sys.argv[4]), where='a')"
    )
    url = server.url(cut(HALF, STALL), good)
    process = subprocess.Popen([sys.executable, "-c", code, url, str(path), SHA256, str(SIZE)])
    give_up_at = time.monotonic() + 60
    while not (partial.exists() and partial.stat().st_size >= HALF // PIECE * PIECE):
        assert process.poll() is None
        assert time.monotonic() < give_up_at
        time.sleep(0.01)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert not path.exists()
    get(url, path)
    assert path.read_bytes() == CONTENT
    assert server.starts == [None, HALF // PIECE * PIECE]
    assert list(tmp_path.iterdir()) == [path]  # not the lock of the killed process either


def test_a_kill_at_any_file_operation_leaves_the_file_or_a_beginning(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, path = server.url(good), tmp_path / "undisturbed/text"
    with monkeypatch.context() as patch:
        operations = stop_after(10**9, patch)
        get(url, path)
    assert len(operations) > SIZE // PIECE
    for limit in range(len(operations)):
        path = tmp_path / f"{limit}/text"
        with monkeypatch.context() as patch:
            stop_after(limit, patch)
            with pytest.raises(Killed):
                get(url, path)
        assert not path.exists() or path.read_bytes() == CONTENT
        get(url, path)
        assert path.read_bytes() == CONTENT


def test_a_full_disk_is_one_line_and_the_download_continues_once_there_is_space(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = 0

    def syscall(call: Callable[..., Any], *arguments: Any) -> Any:
        nonlocal written
        if call is os.write and len(arguments[1]) == PIECE:
            written += PIECE
            if written > 3 * PIECE:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return call(*arguments)

    url = server.url(good)
    with monkeypatch.context() as patch:
        patch.setattr(files, "syscall", syscall)
        with pytest.raises(StorageError, match=r"\.text\.part: cannot write: No space left"):
            get(url, tmp_path / "text")
    assert not (tmp_path / "text").exists()
    get(url, tmp_path / "text")
    assert server.starts == [None, 3 * PIECE]
    assert (tmp_path / "text").read_bytes() == CONTENT


def test_the_content_is_durable_before_it_has_its_name(
    server: Server, tmp_path: Path, unsynced: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    syscall = files.syscall

    def check(call: Callable[..., Any], *arguments: Any) -> Any:
        if call is os.replace:
            seen.append(os.stat(arguments[0]).st_ino in unsynced)
        return syscall(call, *arguments)

    monkeypatch.setattr(files, "syscall", check)
    get(server.url(good), tmp_path / "text")
    assert seen == [False]


@pytest.mark.parametrize(("first", "asked"), [(good, 1), (status("404 Not Found"), 2)])
def test_two_at_once_download_the_file_one_after_the_other(
    server: Server, tmp_path: Path, first: Answer, asked: int
) -> None:
    path, waiting, lines = tmp_path / "d/text", threading.Event(), list[str]()

    def slow(start: int | None) -> Iterator[bytes]:
        assert waiting.wait(30)
        yield from first(start)

    def report(line: str) -> None:
        lines.append(line)
        if line.startswith("waiting: "):
            waiting.set()

    def run() -> None:
        with contextlib.suppress(StorageError):
            get(url, path, say=report)

    url = server.url(slow, good)
    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert path.read_bytes() == CONTENT
    assert list(path.parent.iterdir()) == [path]
    assert len(server.starts) == asked
    assert sum(line.startswith("waiting: ") for line in lines) == 1


def test_the_progress_is_reported(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINE_INTERVAL", 0.0)
    lines: list[str] = []
    get(server.url(good), tmp_path / "text", say=lines.append)
    assert lines[0] == f"downloading {server.url(good)}"
    assert lines[1] == "downloaded 16 KiB of 195 KiB"  # 2^14 bytes of 200,000
    assert lines[-1] == "downloaded 195 KiB of 195 KiB"


def test_a_large_file_takes_little_memory(server: Server, tmp_path: Path) -> None:
    count = 100  # times 200 kB

    def large(start: int | None) -> Iterator[bytes]:
        yield head("200 OK", f"Content-Length: {count * SIZE}")
        for _ in range(count):
            yield CONTENT

    digest = hashlib.sha256()
    for _ in range(count):
        digest.update(CONTENT)
    tracemalloc.start()
    try:
        path = tmp_path / "text"
        download([server.url(large)], path, digest.hexdigest(), max_bytes=count * SIZE, where="a")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert path.stat().st_size == count * SIZE
    assert peak < count * SIZE / 4


def test_a_proxy_of_the_environment_is_used(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = server.url(cut(HALF), good).removesuffix("/text")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", proxy)
    get("http://books.test/plays", tmp_path / "text")
    assert (tmp_path / "text").read_bytes() == CONTENT
    assert server.paths == ["http://books.test/plays"] * 2


def test_offline_the_file_and_its_place_are_named_and_nobody_is_asked(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPTLITE_OFFLINE", "1")
    url, path = server.url(good), tmp_path / "d/text"
    with pytest.raises(StorageError) as caught:
        get(url, path)
    assert str(caught.value) == (
        f"a: downloads are forbidden (--offline, GPTLITE_OFFLINE=1). Put the file {url} at {path}."
    )
    assert server.starts == []
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv("GPTLITE_OFFLINE", "yes")
    with pytest.raises(ConfigError, match=r"^GPTLITE_OFFLINE: the environment variable is 'yes'\. Set it to 1 "):
        get(url, path)
    monkeypatch.setenv("GPTLITE_OFFLINE", "0")
    get(url, path)
    assert path.read_bytes() == CONTENT
