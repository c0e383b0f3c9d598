"""What tests share: the repository, what a power cut would lose, an environment that does not steer the outcome."""

from __future__ import annotations

import http.server
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# Before any test imports the libraries that read them.
os.environ["HF_HUB_OFFLINE"] = "1"
for name in ("GPTLITE_RUNS", "GPTLITE_THREADS", "OMP_DYNAMIC", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"):
    os.environ.pop(name, None)
# Tensors of tests are too small for a second thread: it brings nothing, and on a busy machine each waits for the other.
os.environ["OMP_NUM_THREADS"] = "1"

# The same examples every time, and no stop-watch on a machine that does other things too.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")


@pytest.fixture(scope="session")
def repository() -> Path:
    """The top of the repository."""
    return Path(__file__).resolve().parent.parent


@pytest.fixture
def unsynced(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Inodes of the files written to since their last fsync: a power cut may lose what is in them."""
    inodes: set[int] = set()

    def syscall(call: Callable[..., Any], *args: Any) -> Any:
        result = call(*args)
        if call is os.write:
            inodes.add(os.fstat(args[0]).st_ino)
        elif call.__name__ == "_fsync":
            inodes.discard(os.fstat(args[0]).st_ino)
        return result

    monkeypatch.setattr("gptlite.files.syscall", syscall)
    return inodes


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[dict[str, bytes]], str]]:
    """Start a web server on this machine with files by name; returns the URL of their folder."""
    folder = tmp_path / "served"
    monkeypatch.setenv("NO_PROXY", "*")

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args, directory=str(folder))

        def log_message(self, *args: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()

        def start(files: dict[str, bytes]) -> str:
            folder.mkdir(exist_ok=True)
            for name, content in files.items():
                (folder / name).write_bytes(content)
            return f"http://127.0.0.1:{server.server_port}/"

        yield start
        server.shutdown()
        thread.join()
