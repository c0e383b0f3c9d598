"""What tests share: the repository, what a power cut would lose, an environment that does not steer the outcome."""

from __future__ import annotations

import http.server
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

from gptlite.config.schema import RunConfig

# Before any test imports the libraries that read them.
os.environ["HF_HUB_OFFLINE"] = "1"
for name in (
    "GPTLITE_RUNS",
    "GPTLITE_THREADS",
    "GPTLITE_OFFLINE",
    "OMP_DYNAMIC",
    "OMP_WAIT_POLICY",
    "GOMP_SPINCOUNT",
    "KMP_BLOCKTIME",
):
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


@pytest.fixture(scope="session", autouse=True)
def _no_waiting_for_the_disk() -> Iterator[None]:
    """No test cuts the power, and an fsync takes milliseconds. The processes that tests start do wait."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)  # which refuses a closed file, too
        yield


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

    monkeypatch.setattr("gptlite.storage.files.syscall", syscall)
    return inodes


SENTENCES = (
    "the cat sat on the mat and looked at the moon. ",
    "a dog ran over the hill to see the sea. ",
    "rain fell on the roof all night, and we slept. ",
)


@pytest.fixture(scope="session")
def text_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """About 20 kB of sentences in random order: easy to learn, impossible to know by heart at once."""
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("text") / "story.txt"
    path.write_text("".join(SENTENCES[i] for i in rng.integers(0, len(SENTENCES), 450)))
    return path


@pytest.fixture(scope="session")
def tiny(text_file: Path) -> RunConfig:
    """Less than a second of training: characters, one layer. The text is prepared once for all tests."""
    return RunConfig().with_values(
        {
            "data.source": str(text_file),
            "data.dir": str(text_file.parent / "prepared"),
            "tokenizer.kind": "char",
            "model.n_layer": 1,
            "model.n_head": 2,
            "model.n_embd": 16,
            "model.block_size": 16,
            "train.max_steps": 12,
            "train.batch_size": 8,
            "train.warmup_steps": 2,
            "eval.every": 4,
            "save.every": 4,
            "log.every": 1,
            "log.tensorboard": False,
            "run.threads": 1,
        }
    )


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
