"""Command lines run inside the test process. Their refusals are compared with messages.txt, which a reviewer can read.

After a change of wording: UPDATE_MESSAGES=1 python -m pytest -q tests/cli
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from gptlite.cli import app, sweep
from gptlite.runs.run import Run

CONFIG = """\
data: {source: story.txt}
tokenizer: {kind: char}
model: {init: zero, n_layer: 1, n_head: 2, n_embd: 16, block_size: 16}
train: {max_steps: 6, batch_size: 8, warmup_steps: 2}
eval: {every: 3}
save: {every: 3}
log: {every: 1, tensorboard: false}
run: {threads: 1}
"""


def write_story(folder: Path) -> None:
    words = ["the cat ", "a dog ", "sat on ", "ran to ", "the mat. ", "the hill.\n"]
    rng = np.random.default_rng(0)
    (folder / "story.txt").write_text("".join(words[i] for i in rng.integers(0, len(words), 2000)))
    (folder / "nano.yaml").write_text(CONFIG)


@dataclass(frozen=True)
class Result:
    """Exit code and output of a command line."""

    code: int
    out: str
    err: str

    @property
    def errors(self) -> list[str]:
        """The problems that were printed, without `error: `."""
        return [line.removeprefix("error: ") for line in self.err.splitlines() if line.startswith("error: ")]

    def refuses(self, message: str) -> bool:
        """Whether the command ended as it does for a mistake of the user, and says this."""
        return self.code == 2 and message in self.err


Gptlite = Callable[..., Result]


MESSAGES = Path(__file__).with_name("messages.txt")
HEADER = "What the command line refuses in its tests. To renew it: UPDATE_MESSAGES=1 python -m pytest -q tests/cli"
UPDATED: dict[str, list[str]] = {}  # the refusals of each test, if the file is to be renewed


def read_messages() -> dict[str, list[str]]:
    """The refusals of each test: a command line and its error lines."""
    blocks = MESSAGES.read_text(encoding="utf-8").rstrip().split("\n\n")[1:]
    return {block.partition("\n")[0]: re.split(r"\n(?=\$ )", block)[1:] for block in blocks}


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Renew messages.txt; the messages of files that were not run are kept."""
    if UPDATED:
        run = {test.partition("::")[0] for test in UPDATED}
        kept = {test: found for test, found in read_messages().items() if test.partition("::")[0] not in run}
        blocks = ["\n".join([test, *dict.fromkeys(found)]) for test, found in (kept | UPDATED).items() if found]
        blocks.sort(key=lambda block: block.partition("::")[0])
        MESSAGES.write_text("\n\n".join([HEADER, *blocks]) + "\n", encoding="utf-8")


def refusal(arguments: tuple[str, ...], error: str, folder: Path) -> list[str]:
    """A command line and its error lines, without what differs between machines; nothing if there was no error."""
    lines = [line for line in error.splitlines() if line.startswith("error: ")]
    text = "\n".join([f"$ gptlite {shlex.join(arguments)}", *lines]).replace(str(folder), "/folder")
    text = re.sub("x{255,}", "LONG", text)
    text = re.sub(r"pid \d+ on \S+ since [^\s,:]+(:[\d:+]+)?", "pid N on HOST since TIME", text)
    text = re.sub(r"[0-9a-f]{12}(?=\b)", "DIGEST", text)
    text = re.sub(r"(?<=in position )\d+", "N", text)
    return [re.sub(r"[\d.,]+(?= [KMG]iB)", "N", text)] if lines else []


@pytest.fixture
def gptlite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> Iterator[Gptlite]:
    """Runs a command line inside this process, in a new folder with a text and a config."""
    write_story(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPTLITE_THREADS", "1")  # models this small gain nothing from more, and wait for each other
    monkeypatch.setenv("GPTLITE_SPEED", "64")  # so that --minutes times nothing
    monkeypatch.setenv("GPTLITE_OFFLINE", "")  # which --offline sets
    refusals: list[str] = []

    def run(*arguments: str) -> Result:
        capfd.readouterr()
        code = app.run(arguments)
        result = Result(code, *capfd.readouterr())
        refusals.extend(refusal(arguments, result.err, tmp_path))
        return result

    yield run
    test = f"{request.path.name}::{request.node.originalname}"
    if os.environ.get("UPDATE_MESSAGES"):
        UPDATED.setdefault(test, []).extend(refusals)
    elif new := set(refusals) - set(read_messages().get(test, [])):
        pytest.fail("\n".join(["these messages are not in messages.txt (see tests/cli/conftest.py):", *new]))


class InThisProcess:
    """Trains a run of a sweep at once, where a process of its own would take longer to import torch."""

    def __init__(self, command: Sequence[str], *, env: Mapping[str, str], **_: object) -> None:
        with (
            pytest.MonkeyPatch.context() as patch,
            open(os.devnull, "w", encoding="utf-8") as nothing,
            contextlib.redirect_stdout(nothing),
        ):
            for name, value in env.items():
                patch.setenv(name, value)
            self.code = app.run(command[command.index("train") :])

    def poll(self) -> int:
        return self.code

    wait = poll


def train_sweeps_in_this_process(set_: Callable[[object, str, object], None]) -> None:
    set_(sweep, "subprocess", SimpleNamespace(Popen=InThisProcess, DEVNULL=subprocess.DEVNULL))
    set_(sweep, "POLL", 0)


@pytest.fixture
def sweeps_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The runs of sweeps are trained inside this process, one after the other."""
    train_sweeps_in_this_process(monkeypatch.setattr)


@pytest.fixture(scope="session")
def trained_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the run of `trained` was made."""
    folder = tmp_path_factory.mktemp("trained")
    write_story(folder)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.chdir(folder)
        assert app.run(["train", "-c", "nano.yaml"]) == 0
    return folder


@pytest.fixture
def trained(gptlite: Gptlite, trained_once: Path) -> Path:
    """A finished run named nano in the folder of `gptlite`."""
    for name in ("runs", "data"):
        shutil.copytree(trained_once / name, name)
    run = Run(Path("runs/nano"))
    info = json.loads(json.dumps(run.info).replace(str(trained_once), str(Path.cwd())))  # where its text lies
    run.write_setup(info, run.config_text())
    return run.path
