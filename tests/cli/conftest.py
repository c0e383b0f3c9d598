from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from gptlite.cli import app

CONFIG = """\
data: {source: story.txt}
tokenizer: {kind: char}
model: {n_layer: 1, n_head: 2, n_embd: 16, block_size: 16}
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
    """What a command line left behind."""

    code: int
    out: str
    err: str


Gptlite = Callable[..., Result]


@pytest.fixture
def gptlite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Gptlite:
    """Runs a command line inside this process, in an empty folder with a text and a config."""
    write_story(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPTLITE_THREADS", "1")  # models this small gain nothing from more, and wait for each other

    def run(*arguments: str) -> Result:
        capfd.readouterr()
        code = app.run(arguments)
        return Result(code, *capfd.readouterr())

    return run


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
    info = Path("runs/nano/run.json")
    info.write_text(info.read_text().replace(str(trained_once), str(Path.cwd())))  # where its text lies
    return Path("runs/nano")
