"""What a log line carries, and that it is on disk before a checkpoint counts on it."""

from __future__ import annotations

import json
import math

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from gptlite.training import launch, session


def test_a_power_cut_after_a_save_loses_no_line_up_to_it(tiny, tmp_path, monkeypatch, unsynced):
    save_checkpoint, lost = session.save_checkpoint, {}

    def save(folder, step, *rest, **more):
        logs = [folder.parent / name for name in ("metrics.jsonl", "samples.jsonl")]
        lost[step] = [path.name for path in logs if path.stat().st_ino in unsynced]
        save_checkpoint(folder, step, *rest, **more)

    monkeypatch.setattr(session, "save_checkpoint", save)
    launch.start(tiny, root=tmp_path, base="tiny")
    assert lost == {0: [], 4: [], 8: [], 12: []}


def norms(cfg, folder) -> list[tuple[float, dict[str, float]]]:
    """Of each log line: the norm of the whole gradient, and those of the layers."""
    run = launch.start(cfg.with_values({"train.max_steps": 2}), root=folder, base="tiny").run
    lines = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    parts = [{key: x for key, x in line.items() if key.startswith("grad_norm/")} for line in lines]
    return [(line["grad_norm"], part) for line, part in zip(lines, parts, strict=True) if line["split"] == "train"]


def test_log_lines_carry_the_norm_of_each_layers_gradient_when_asked_to_and_only_then(tiny, tmp_path):
    asked = tiny.with_values({"log.grad_norms": True, "log.tensorboard": True, "train.grad_clip": 1e-3})
    for whole, parts in norms(asked, tmp_path):
        assert set(parts) == {"grad_norm/embeddings", "grad_norm/block_1", "grad_norm/final_norm"}
        assert math.hypot(*parts.values()) == pytest.approx(whole, rel=1e-5)
    events = EventAccumulator(str(tmp_path / "tiny" / "tb"))
    events.Reload()
    assert "train/grad_norm/block_1" in events.Tags()["scalars"]
    assert all(parts == {} for _, parts in norms(tiny, tmp_path))
