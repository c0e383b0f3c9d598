"""Summaries, groups and curves of runs that were written by hand."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gptlite.config.loading import dump_config
from gptlite.config.schema import RunConfig
from gptlite.config.yaml import saved_values
from gptlite.errors import Diverged, RunError
from gptlite.loggers.tensorboard import BASELINES
from gptlite.runs.compare import (
    find_differing_keys,
    find_seed_group,
    find_settings_by,
    group_seeds,
    uncommon_values,
)
from gptlite.runs.run import Run
from gptlite.runs.summary import Evaluation, read_curve, read_run, read_runs, read_samples

HOLDER = "from gptlite.runs.run import Run; from pathlib import Path; import sys\n"
HOLDER += "with Run(Path(sys.argv[1])).lock(): print('held', flush=True); input()"


def line(step: int, split: str, **values: object) -> dict[str, object]:
    return {"step": step, "split": split, **values}


def written(
    folder: Path,
    name: str,
    *scores: float,
    finished: bool = True,
    text: str = "t",
    chosen: tuple[str, ...] = (),
    **keys: object,
) -> Run:
    """A run with an evaluation after every 100 updates of 8 x 16 tokens, 10 s each."""
    values = {"train.batch_size": 8, "model.block_size": 16, "train.max_steps": 300}
    run = Run(folder / name)
    run.path.mkdir(parents=True)
    given = {key.replace("__", "."): value for key, value in keys.items()}
    info = {"started_at": "2026-01-02T03:04:05+00:00", "parameters": 1234, "data": text, "chosen": list(chosen)}
    run.write_setup(info, dump_config(RunConfig().with_values(values | given)))
    lines = []
    for i, score in enumerate(scores, 1):
        lines.append(line(100 * i, "train", loss=2.0, time={"elapsed": 9.0 * i, "tokens_per_second": 500.0 + i}))
        lines.append(line(100 * i, "val", bits_per_byte=score, time={"elapsed": 10.0 * i}))
    (run.path / "metrics.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
    if finished:
        best = scores.index(min(scores))
        run.finish({"step": 100 * len(scores), "best_step": 100 * (best + 1), "best_bits_per_byte": scores[best]})
    return run


def test_a_summary_has_the_numbers_of_the_files(tmp_path):
    summary, problems = read_run(written(tmp_path, "a", 3.0, 2.0, 2.5))
    assert problems == []
    assert (summary.name, summary.state, summary.parameters, summary.tokenizer) == ("a", "finished", 1234, "bpe 4096")
    assert (summary.step, summary.steps, summary.tokens) == (300, 300, 300 * 8 * 16)
    assert (summary.best_bits_per_byte, summary.best_step) == (2.0, 200)
    assert (summary.elapsed, summary.tokens_per_second) == (30.0, 502.0)
    assert summary.started_at == 1767323045.0  # date -d 2026-01-02T03:04:05Z +%s


def test_the_best_of_an_unfinished_run_is_found_among_thousands_of_lines(tmp_path):
    run = written(tmp_path, "a", 3.0, 1.5, finished=False)
    more = [line(step, "train", loss=2.0, time={"elapsed": 1.0 * step}) for step in range(201, 2000)]
    with (run.path / "metrics.jsonl").open("a") as file:
        file.writelines(json.dumps(each) + "\n" for each in more)
    summary, _ = read_run(run)
    assert (summary.state, summary.step, summary.best_bits_per_byte, summary.best_step) == ("stopped", 1999, 1.5, 200)


def test_steps_are_the_default_or_none_where_the_clock_or_epochs_decide(tmp_path):
    default, _ = read_run(written(tmp_path, "a", 3.0, train__max_steps=None))
    by_epochs, _ = read_run(written(tmp_path, "c", 3.0, train__max_steps=None, train__epochs=2.0))
    by_clock, _ = read_run(written(tmp_path, "b", 3.0, train__max_steps=None, train__max_minutes=3.0))
    assert (default.steps, by_epochs.steps, by_clock.steps) == (RunConfig().train.updates, None, None)


def test_a_locked_run_is_running_and_asking_does_not_disturb_the_holder(tmp_path):
    run = written(tmp_path, "a", 3.0)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, run.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    with holder:
        assert holder.stdout.readline() == "held\n"
        assert read_run(run)[0].state == "running"  # though it is finished: somebody goes on with it
        assert run.locked
        with pytest.raises(RunError, match=f"pid {holder.pid}"), run.lock():
            pass
        holder.communicate("\n")
    assert holder.returncode == 0
    assert read_run(run)[0].state == "finished"


def test_divergence_is_recorded_until_the_run_is_reopened(tmp_path):
    run = written(tmp_path, "a", 3.0, finished=False)
    with pytest.raises(Diverged), run.noting_divergence():
        raise Diverged("loss = nan", "step 7", {"step": 7})
    assert json.loads((run.path / "diverged.json").read_text())["problem"] == "step 7: loss = nan"
    assert read_run(run)[0].state == "diverged"
    run.reopen()
    assert read_run(run)[0].state == "stopped"


def test_broken_folders_are_a_line_each_and_the_others_are_listed(tmp_path):
    written(tmp_path, "good", 3.0)
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("no folder")
    for name, content in {"yaml": b"model: {n_layer: [", "bytes": b"\xff\xfe\x00", "list": b"- 1"}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.yaml").write_bytes(content)
    (tmp_path / "folder" / "config.yaml").mkdir(parents=True)
    runs, problems = read_runs(tmp_path)
    assert [run.name for run in runs] == ["good"]
    assert len(problems) == 5
    for name in ("empty", "yaml", "bytes", "list", "folder"):
        assert sum(f"{tmp_path / name}" in problem for problem in problems) == 1


@pytest.mark.parametrize("damage", [b"", b"\x00\xff rubbish\n" * 9, b'{"step": "x"}\n', b"[1]\n", b'{"step": 9, "spl'])
def test_a_run_with_damaged_metrics_is_listed(tmp_path, damage):
    run = written(tmp_path, "a", 3.0)
    (run.path / "metrics.jsonl").write_bytes(damage)
    (summary,), problems = read_runs(tmp_path)
    assert (summary.best_bits_per_byte, summary.step, summary.elapsed) == (3.0, 100, None)
    # A line without its end is being written, or its writer was killed: nothing is wrong with it.
    assert len(problems) == (damage.endswith(b"\n"))


def test_the_folder_of_baselines_is_not_reported(tmp_path: Path) -> None:
    (tmp_path / BASELINES / "story.txt").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    runs, problems = read_runs(tmp_path)
    assert runs == []
    assert [problem.partition(": ")[0] for problem in problems] == [str(tmp_path / "other")]


def test_a_run_with_damaged_records_is_listed_and_they_are_named(tmp_path):
    run = written(tmp_path, "a", 3.0, 2.0)
    (run.path / "run.json").write_text("{")
    (run.path / "finished.json").write_text('{"format_version": 99}')
    (summary,), problems = read_runs(tmp_path)
    assert (summary.parameters, summary.best_bits_per_byte) == (None, 2.0)
    assert [path in problem for path, problem in zip(("run.json", "finished.json"), problems, strict=True)] == [
        True
    ] * 2


def test_saved_values_are_those_of_the_config_in_any_layout(tmp_path):
    cfg = RunConfig().with_values({"data.source": ["a b", "c#d.txt"], "eval.prompt": 'x: "y" # z', "train.lr": 3e-05})
    expected = {f"{section}.{key}": v for section, keys in cfg.model_dump().items() for key, v in keys.items()}
    text = dump_config(cfg)
    assert saved_values(text) == expected
    edited = "# mine\n" + text.replace("  bias: false\n", "  bias: false  # none\n\n")
    assert edited != text
    assert saved_values(edited) == expected


def test_finished_runs_that_differ_only_in_their_seed_are_one_group(tmp_path):
    for seed, best in ((1, 2.0), (2, 2.2), (3, 2.4)):
        written(tmp_path, f"a-{seed}", best, run__seed=seed)
    written(tmp_path, "again", 2.0, run__seed=1)
    written(tmp_path, "other", 2.0, run__seed=1, train__lr=0.5)
    written(tmp_path, "other-text", 2.0, run__seed=4, text="u")
    written(tmp_path, "half", 2.0, run__seed=5, finished=False)
    rows = group_seeds(read_runs(tmp_path)[0])
    assert [[run.name for run in row.runs] for row in rows] == [
        ["a-1", "a-2", "a-3"],
        ["again"],
        ["half"],
        ["other"],
        ["other-text"],
    ]
    assert rows[0].best == pytest.approx(2.2)
    assert rows[0].deviation == pytest.approx(0.2)  # of 2.0, 2.2, 2.4, by n - 1
    assert rows[1].deviation is None
    assert find_differing_keys(rows) == ["run.seed", "train.lr"]
    assert find_differing_keys(rows[:1]) == []


def test_uncommon_values_are_those_that_at_most_half_of_the_groups_have(tmp_path):
    for name, lr in (("a", 0.1), ("b", 0.1), ("c", 0.2)):
        written(tmp_path, name, 2.0, finished=False, train__lr=lr, train__grad_clip=None if name == "b" else 1.0)
    rows = group_seeds(read_runs(tmp_path)[0])
    assert uncommon_values(rows) == [{}, {"train.grad_clip": None}, {"train.lr": 0.2}]
    assert uncommon_values(rows[1:]) == [
        {"train.lr": 0.1, "train.grad_clip": None},
        {"train.lr": 0.2, "train.grad_clip": 1.0},
    ]


def test_a_folder_of_runs_may_have_a_config_itself(tmp_path):
    written(tmp_path, "a", 3.0)
    (tmp_path / "config.yaml").write_text("train: {lr: 1}\n")
    assert [each.name for each in read_runs(tmp_path)[0]] == ["a"]


def test_what_rules_chose_is_no_difference_where_a_given_key_differs(tmp_path):
    follow = ("model.n_embd", "train.lr")
    for minutes, width, lr in (1, 32, 0.02), (2, 64, 0.01):
        keys = {"train__max_steps": None, "train__max_minutes": minutes, "model__n_embd": width, "train__lr": lr}
        written(tmp_path, f"of-{minutes}", 2.0, chosen=follow, **keys)
    rows = group_seeds(read_runs(tmp_path)[0])
    assert find_differing_keys(rows) == ["train.max_minutes"]
    written(tmp_path, "by-hand", 2.0, train__lr=0.5)
    assert "train.lr" in find_differing_keys(group_seeds(read_runs(tmp_path)[0]))


def test_the_settings_of_a_key_share_all_others_but_what_follows_from_it(tmp_path):
    for name, width, lr in ("a", 32, 0.02), ("b", 64, 0.01):
        written(tmp_path, name, 2.0, chosen=("train.lr",), model__n_embd=width, train__lr=lr)
    written(tmp_path, "by-hand", 2.0, model__n_embd=64, train__lr=0.01)
    written(tmp_path, "deeper", 2.0, chosen=("train.lr",), model__n_embd=64, model__n_layer=2, train__lr=0.01)
    written(tmp_path, "half", 2.0, chosen=("train.lr",), model__n_embd=128, finished=False)
    runs = {run.name: run for run in read_runs(tmp_path)[0]}
    rows = find_settings_by("model.n_embd", runs["a"], list(runs.values()))
    assert [row.first.name for row in rows] == ["a", "b"]


def test_the_seed_group_of_a_run_has_no_unfinished_run(tmp_path):
    for seed in (2, 5):
        written(tmp_path, f"a-{seed}", 2.0, run__seed=seed)
    written(tmp_path, "half", 2.0, run__seed=1, finished=False)
    written(tmp_path, "b", 2.0, run__seed=3, train__lr=0.5)
    runs = {run.name: run for run in read_runs(tmp_path)[0]}
    groups = {name: [run.name for run in find_seed_group(runs[name], list(runs.values())).runs] for name in runs}
    assert groups == {"a-2": ["a-2", "a-5"], "a-5": ["a-5", "a-2"], "half": ["half"], "b": ["b"]}


def test_a_curve_has_the_evaluations_by_step(tmp_path):
    summary, _ = read_run(written(tmp_path, "a", 3.0, 2.0))
    assert read_curve(summary) == [Evaluation(100, 10.0, 3.0), Evaluation(200, 20.0, 2.0)]


def test_samples_are_those_of_complete_lines(tmp_path):
    run = written(tmp_path, "a", 3.0)
    assert read_samples(run) == []
    (run.path / "samples.jsonl").write_text('{"step": 0, "text": "x"}\n{"step": 5, "text": "y"}\n{"step": 9, "te')
    assert read_samples(run)[-1] == (5, "y")
