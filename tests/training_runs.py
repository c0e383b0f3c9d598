"""Runs of a tiny model that tests interrupt and compare."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from gptlite.config.schema import RunConfig
from gptlite.loggers.metrics import Listener
from gptlite.runs.checkpoint import Checkpoint, valid_checkpoints
from gptlite.runs.run import Run
from gptlite.training import loop
from gptlite.training.launch import Request, open_session
from gptlite.training.session import Outcome


class Crash(Exception):
    """What a power cut looks like from inside."""


class Lines(Listener):
    """Hears what is said."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def say(self, line: str) -> None:
        self.heard.append(line)


def numbers(run: Run) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "time"} for line in lines]


def final(run: Run) -> Checkpoint:
    return valid_checkpoints(run.checkpoints)[-1].verified()


def assert_same_end(a: Run, b: Run) -> None:
    one, other = final(a), final(b)
    assert one.step == other.step
    for name in ("model.safetensors", "optimizer.safetensors"):
        left, right = one.read_tensors(name), other.read_tensors(name)
        assert left.keys() == right.keys()
        assert all(torch.equal(left[key], right[key]) for key in left)
    assert numbers(a) == numbers(b)
    assert (a.path / "samples.jsonl").read_text() == (b.path / "samples.jsonl").read_text()


def train(request: Request, listener: Listener | None = None) -> Outcome:
    with open_session(request, listener) as session:
        return session.train()


def train_new(
    cfg: RunConfig, *, root: Path, base: str = "tiny", name: str | None = None, listener: Listener | None = None
) -> Outcome:
    return train(Request(cfg, name, base, root=root), listener)


def start(cfg: RunConfig, root: Path, name: str) -> Run:
    return train_new(cfg, root=root, name=name).run


def resume(run: Run, wanted: RunConfig | None = None, *, listener: Listener | None = None) -> Outcome:
    """A run that goes on, as it was or as is wanted now."""
    return train(Request(wanted, run=run), listener)


def resume_or_start(cfg: RunConfig, *, root: Path, name: str) -> Outcome:
    """As with --continue."""
    run = Run(root / name)
    return train(Request(cfg, name, run=run if run.started else None, root=root))


def crash_at(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    real = loop.train_step

    def train_step(trainer, at, *rest):
        if at == step:
            raise Crash
        return real(trainer, at, *rest)

    monkeypatch.setattr(loop, "train_step", train_step)


def signal_in(monkeypatch: pytest.MonkeyPatch, step: int, *signums: int) -> None:
    real = loop.train_step

    def train_step(trainer, at, *rest):
        if at == step:
            for signum in signums:
                signal.raise_signal(signum)
        return real(trainer, at, *rest)

    monkeypatch.setattr(loop, "train_step", train_step)
