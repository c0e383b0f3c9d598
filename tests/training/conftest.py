from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gptlite.config.schema import RunConfig
from gptlite.training import loop, trainer

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


@pytest.fixture
def tiny(text_file: Path, tmp_path: Path) -> RunConfig:
    """Seconds of training: characters, one layer."""
    return RunConfig().with_values(
        {
            "data.source": str(text_file),
            "data.dir": str(tmp_path / "prepared"),
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


class Hands:
    """A clock that stands still unless something takes time."""

    def __init__(self) -> None:
        self.seconds, self.update, self.busy_from = 0.0, 2.0, float("inf")

    def take(self, seconds: float) -> None:
        """Work on an idle machine; once another program takes half of it, the work takes twice as long."""
        self.seconds += seconds if self.seconds < self.busy_from else 2 * seconds

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def hands(monkeypatch: pytest.MonkeyPatch) -> Hands:
    """Every update takes 2 seconds, every evaluation 4, as was expected."""
    hands = Hands()
    real_step, real_look = loop.train_step, loop.look

    def step(*args):
        hands.take(hands.update)
        return real_step(*args)

    def look(*args):
        hands.take(4)
        return real_look(*args)

    monkeypatch.setattr(loop, "perf_counter", hands)
    monkeypatch.setattr(loop, "train_step", step)
    monkeypatch.setattr(loop, "look", look)
    monkeypatch.setattr(trainer, "evaluation_in_updates", lambda *_: 4 / hands.update)
    return hands
