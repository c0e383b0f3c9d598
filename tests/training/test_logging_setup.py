"""All that a run tells TensorBoard, read back with its own readers: every documented tag, each step once."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator
from training_runs import Crash, crash_at, resume, resume_or_start, train_new

from gptlite.compute.device import Compute
from gptlite.config.schema import RunConfig
from gptlite.data.dataset.prepared import Prepared
from gptlite.runs.run import Run
from gptlite.training.session import best_baseline, settings_of

TAGS = Path(__file__).parents[2] / "docs/tensorboard.md"
EVERYTHING = {
    "train.scheduled_sampling": 0.2,
    "log.tensorboard": True,
    "log.attention": True,
    "log.grad_norms": True,
    "log.every": 3,
    "save.every": 5,
    "train.optimizer": "muon",
    "train.lr": 0.02,
    "train.adamw_lr": 0.01,
    "model.tie_weights": False,
}
OF_THE_MACHINE = ("workload/",)
LAYERS = ("embeddings", "block_1", "final_norm", "head")
LINES = {"unigram": "unigram", "bigram": "bigram", "gzip": "gzip", "xz": "xz", "PPMd": "ppmd"}
NEVER_READ = "_hparams_/"  # no curves: what the HParams tab lists


def documented() -> list[re.Pattern[str]]:
    """The tags of docs/tensorboard.md; <layer> and <parameter> stand for a name."""
    section = TAGS.read_text("utf-8").partition("## Tags")[2].partition("\n## ")[0]
    tags = [
        tag
        for line in section.splitlines()
        if line.startswith("| `")
        for tag in re.findall(r"`([a-z_]+(?:/[a-z_<>/]+)?)`", line)
        if not tag.startswith("tb/")
    ]
    return [re.compile(re.sub("<[a-z]+>", "[a-z0-9_.]+", tag)) for tag in tags]


def curves(run: Run) -> dict[str, dict[str, list[tuple[int, Any]]]]:
    """folder -> tag -> [(step, value)], as TensorBoard's pages show them."""
    found = {}
    (text,) = (run.path.parent / ".baselines").iterdir()
    folders = {path.parent for folder in (run.path / "tb", text) for path in folder.rglob("events.*")}
    for folder in folders:
        events = EventAccumulator(str(folder), size_guidance={"tensors": 0})
        events.Reload()
        found[folder.name] = {
            tag: [(event.step, event.tensor_proto.SerializeToString()) for event in events.Tensors(tag)]
            for tag in events.Tags()["tensors"]
            if not tag.startswith(NEVER_READ)
        }
    return found


def numbers(run: Run, split: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line["split"] == split]


@pytest.fixture(scope="module")
def runs(tiny: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    """One left alone, and one that crashed after update 8, was resumed from 5, and crashed and was resumed again."""
    cfg, root = tiny.with_values(EVERYTHING), tmp_path_factory.mktemp("logged") / "runs"
    in_fp16 = cfg.with_values({"train.max_steps": 2, "run.precision": "fp16"})
    base = train_new(in_fp16, root=root.parent / "others").run
    cfg = cfg.with_values({"train.from": str(base.path)})
    whole = train_new(cfg, root=root, name="whole").run
    cut = Run(root / "cut")
    for at in (8, 11):
        with pytest.MonkeyPatch.context() as patch:
            crash_at(patch, at)
            with pytest.raises(Crash):
                resume_or_start(cfg, root=root, name="cut")
    resume(cut)
    return whole, cut


def test_every_tag_is_documented_every_documented_tag_is_there_and_no_step_is_there_twice(
    runs: tuple[Run, Run],
) -> None:
    manifest = Prepared(Path(runs[0].info["prepared"])).manifest
    whole, cut = map(curves, runs)
    in_fp16 = curves(Run(runs[0].path.parents[1] / "others/tiny"))
    tags = {tag for folder in (*whole.values(), in_fp16["tb"]) for tag in folder}
    patterns = documented()
    assert len(patterns) > 20
    assert [tag for tag in tags if not any(p.fullmatch(tag) for p in patterns)] == []
    assert [p.pattern for p in patterns if not any(p.fullmatch(tag) for tag in tags)] == []
    name, value = best_baseline(manifest)
    assert whole.keys() == cut.keys() == {"tb", f"{name} {value:.3f}"}
    for folder, by_tag in cut.items():
        for tag, points in by_tag.items():
            steps = [step for step, _ in points]
            assert steps == sorted(set(steps)), f"{folder}: {tag}"
            if not tag.startswith(OF_THE_MACHINE):
                assert points == whole[folder][tag], f"{folder}: {tag}"
            else:
                assert steps == [step for step, _ in whole[folder][tag]], f"{folder}: {tag}"


def test_every_metric_of_the_log_is_in_tensorboard(runs: tuple[Run, Run]) -> None:
    run, _ = runs
    tags = curves(run)["tb"]
    for split in ("train", "val"):
        for line in numbers(run, split):
            shown = line.keys() - {"step", "split", "time", "tokens"}
            assert {f"{split}/{name}" for name in shown} <= tags.keys()
            of_time = line["time"].keys() - {"elapsed"}
            assert of_time <= {tag.rpartition("/")[2] for tag in tags}


def test_the_curves_are_the_numbers_of_the_log(runs: tuple[Run, Run]) -> None:
    run, _ = runs
    train, val = numbers(run, "train"), numbers(run, "val")
    assert [line["step"] for line in train] == [3, 6, 9, 12]
    for line in train:
        assert line["lr/muon"] == line["lr"] == 2 * line["lr/adamw"]
        assert 0 < line["update_ratio"] < 1
        assert math.isclose(
            math.hypot(*(line[f"grad_norm/{layer}"] for layer in LAYERS)), line["grad_norm"], rel_tol=1e-5
        )
        assert line["time"].keys() == {"elapsed", "tokens_per_second", "mfu", "peak_mib"}
        assert line["time"]["mfu"] > 0
        assert line["time"]["peak_mib"] > 50
    assert [line["tokens"] for line in val if "loss" in line] == [0, 4 * 128, 8 * 128, 12 * 128]
    for name in ("loss", "attention_entropy/block_1"):
        assert [step for step, _ in curves(run)["tb"][f"val/{name}"]] == [line["step"] for line in val if name in line]


def test_without_tensorboard_nothing_of_it_is_written_or_computed(
    tiny: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gptlite.training.diagnostics.attention_image", lambda _: pytest.fail("nobody shows it"))
    run = train_new(tiny, root=tmp_path / "runs").run
    assert not (run.path / "tb").exists()


def test_the_peak_is_measured_with_the_threads_of_the_run(
    tiny: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []

    def product(compute: Compute) -> float:
        threads.append(torch.get_num_threads())
        return 1e9

    monkeypatch.setattr("gptlite.training.throughput.matmul_flops_per_second", product)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        train_new(tiny.with_values({"run.threads": 1}), root=tmp_path / "runs")
    finally:
        torch.set_num_threads(before)
    assert threads == [1]


def test_settings_are_what_decides_a_model_and_the_line_is_the_best_baseline_of_the_text(
    tiny: RunConfig, tmp_path: Path
) -> None:
    outcome = train_new(tiny, root=tmp_path / "runs")
    manifest = Prepared(outcome.prepared.path).manifest
    settings = settings_of(tiny, manifest)
    assert settings["data.source"] == "story.txt"
    assert settings["vocab_size"] == manifest.tokenizer.vocab_size
    assert {"tokenizer.kind", "model.n_embd", "train.lr", "train.max_steps", "run.seed"} < settings.keys()
    assert not {"data.order", "train.micro_batch_size", "run.dir", "run.threads", "eval.every"} & settings.keys()
    bits = {name: getattr(manifest.baselines, field) for name, field in LINES.items()}
    assert best_baseline(manifest) == (min(bits, key=bits.get), min(bits.values()))
    short = replace(manifest, val=replace(manifest.val, bytes=100))  # it fits into the headers of compressors
    assert best_baseline(short) == ("bigram", manifest.baselines.bigram)
