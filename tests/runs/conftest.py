"""A run's checkpoints that are quick to write: two small tensors and what a reader looks for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from gptlite.runs.checkpoint import Checkpoint, save_checkpoint

Save = Callable[..., Checkpoint]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The checkpoints folder of a run, not yet made."""
    (tmp_path / "small").mkdir()
    return tmp_path / "small" / "checkpoints"


@pytest.fixture
def save(folder: Path) -> Save:
    """save(step, score=None): a checkpoint whose numbers follow from its step."""

    def save(step: int, score: float | None = None) -> Checkpoint:
        model = {"wte": torch.full((3, 2), float(step)), "bias": torch.tensor(0.1, dtype=torch.bfloat16)}
        moments = {"wte.exp_avg": torch.arange(6.0).reshape(3, 2).T, "wte.step": torch.tensor(step)}
        files = {"state.json": json.dumps({"step": step}).encode(), "config.json": b"{}"}
        tensors = {"model.safetensors": model, "optimizer.safetensors": moments}
        return save_checkpoint(folder, step, files, tensors, score=score)

    return save
