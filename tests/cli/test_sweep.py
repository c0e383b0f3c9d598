"""`gptlite train --sweep`: what it refuses, its table, and that it survives being killed."""

from __future__ import annotations

import json
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from training_runs import numbers

from gptlite.cli.sweep import check_unchanged, plan_sweep
from gptlite.cli.train.options import TrainOptions
from gptlite.config.loading import dump_config, load_config
from gptlite.errors import UserError
from gptlite.runs.checkpoint import valid_checkpoints
from gptlite.runs.run import Run
from gptlite.training.launch import with_absolute_paths


def begun(name: str, *sets: str) -> Run:
    """Make the folder of a run that has started."""
    run = Run(Path("runs", name))
    run.path.mkdir(parents=True)
    run.write_setup({}, dump_config(with_absolute_paths(load_config(Path("nano.yaml"), sets))))
    return run


@pytest.fixture(autouse=True)
def _same_package(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(repository))  # for the processes of the runs


@pytest.fixture
def no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr("gptlite.cli.sweep.subprocess.Popen", refuse)


LR = ["--sweep", "train.lr=1e-3,3e-3"]


@pytest.mark.usefixtures("no_processes")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--jobs", "2"], "--jobs has no effect without --sweep. Add that, or leave it out."),
        ([*LR, "--resume", "x"], "--resume cannot be combined with --sweep. "),
        ([*LR, "--dry-run"], "--dry-run cannot be combined with --sweep. "),
        ([*LR, "--json"], "--json cannot be combined with --sweep. "),
        ([*LR, *LR], "--sweep: train.lr is set more than once."),
        ([*LR, "--set", "train.lr=1"], "--sweep: train.lr is set more than once."),
        (["--data", "story.txt", "--sweep", "data.source=a,b"], "--sweep: data.source is set more than once."),
        ([*LR, "--name", "a/b"], "a run cannot have this name. A name has 1 to 200 bytes"),
        ([*LR, "--name", "x" * 199], "a run cannot have this name. A name has 1 to 200 bytes"),
        ([*LR, "--set", "model.n_layer=0"], "--set: model.n_layer is 0, but it must be a whole number >= 1."),
        (
            ["--sweep", "model.n_embd=16,18,20", "--set", "model.n_head=4"],
            "model.n_embd is 18, which is not a multiple of n_head (4).",
        ),
        (
            ["--sweep", "tokenizer.kind=bpe,char", "--set", "tokenizer.vocab_size=300"],
            "tokenizer.vocab_size is 300, but kind is char",
        ),
        (["--sweep", "data.source=story.txt,gone.txt"], "there is no file, folder or data set named gone.txt. "),
        (["--sweep", "model.block_size=16,99999"], "Use --set model.block_size=14122 or less"),
    ],
)
def test_it_is_refused_before_any_run_is_made(gptlite, words, message):
    result = gptlite("train", "-c", "nano.yaml", *words)
    assert result.code == 2
    assert any(message in error for error in result.errors)
    assert not Path("runs").exists()


@pytest.mark.usefixtures("no_processes")
def test_all_mistakes_of_a_grid_are_reported_at_once(gptlite, monkeypatch):
    words = ["--sweep", "train.lr=1,1", "--sweep", "model.layers=1"]
    starts = [error.partition(":")[0] for error in gptlite("train", "-c", "nano.yaml", *words).errors]
    assert starts == ["--sweep", "--sweep"]
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert gptlite("train", *LR).refuses("--sweep: torchrun started 2 processes.")


@pytest.mark.usefixtures("no_processes")
def test_an_existing_sweep_asks_for_continue_or_another_name(gptlite):
    begun("nano-sweep-01-lr=0.001", "train.lr=0.001")
    result = gptlite("train", "-c", "nano.yaml", *LR)
    assert (result.code, len(result.errors)) == (2, 1)
    assert result.errors[0].startswith(
        "--name nano-sweep: a sweep of this name exists: its run nano-sweep-01-lr=0.001. Add --continue"
    )
    grid = gptlite("train", "-c", "nano.yaml", "--sweep", "model.n_layer=1,2", "--continue")
    assert grid.code == 2
    assert grid.errors[0].startswith("run nano-sweep-01-lr=0.001: this run is not in the grid. ")


@pytest.mark.usefixtures("no_processes")
def test_a_sweep_is_not_continued_with_another_config(gptlite):
    for number, lr in ((1, 0.001), (2, 0.003)):
        begun(f"nano-sweep-0{number}-lr={lr}", f"train.lr={lr}")
    result = gptlite("train", "-c", "nano.yaml", *LR, "--continue", "--set", "train.warmup_steps=1")
    assert (result.code, len(result.errors)) == (2, 1)
    problem = "run nano-sweep-01-lr=0.001: train.warmup_steps is 2 in this run and cannot become 1"
    assert result.errors[0].startswith(problem)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nano.yaml", "nano.yaml: this config was changed while the sweep was running. "),
        ("story.txt", "the text or its"),
    ],
)
def test_no_run_starts_from_a_config_or_a_text_that_changed_during_the_sweep(gptlite, path, message):
    words = ["train", "-c", "nano.yaml", "--set", "train.max_steps=1"]
    assert gptlite(*words, "--set", "train.lr=1e-3", "--name", "s-01-lr=0.001").code == 0
    _, configs, runs = plan_sweep(TrainOptions(config="nano.yaml", set_=words[-1:], sweep=LR[1:], name="s"))
    check_unchanged(runs[1], runs, configs)
    Path(path).write_text(Path(path).read_text().replace("16}", "18}").replace("the cat", "the dog"))
    with pytest.raises(UserError, match=message):
        check_unchanged(runs[1], runs, configs)


def finished(name: str, best: float, at: int, *sets: str) -> None:
    run = begun(name, *sets)
    run.finish({"best_bits_per_byte": best, "best_step": at})
    val = {"step": at, "split": "val", "loss": 2 * best, "bits_per_byte": best}
    (run.path / "metrics.jsonl").write_text(json.dumps(val) + "\n")


def cells(out: str) -> list[list[str]]:
    """The rows of the table, which the verdict on its seeds and the next commands follow."""
    table = re.split("\n\n|next:\n", out)[0]
    return [re.split(r" {2,}", line.strip()) for line in table.splitlines()]


@pytest.mark.usefixtures("no_processes")
def test_a_model_without_a_mask_comes_last_whatever_its_score_and_no_command_names_it(gptlite, monkeypatch):
    monkeypatch.setattr("gptlite.cli.sweep.check_text", lambda runs, cfg: None)
    for number, (variant, best) in enumerate({"no_mask": 0.1, "null": 2.0, "no_norm": 1.5}.items(), start=1):
        finished(f"nano-sweep-0{number}-variant={variant}", best, 6, f"model.variant={variant}")
    result = gptlite("train", "-c", "nano.yaml", "--sweep", "model.variant=no_mask,null,no_norm", "--continue")
    assert result.code == 0
    assert cells(result.out) == [
        ["run", "state", "bits/byte", "at", "differs"],
        ["nano-sweep-03-variant=no_norm", "finished", "1.5000", "6", "variant no_norm"],
        ["nano-sweep-02-variant=null", "finished", "2.0000", "6", "variant null"],
        ["nano-sweep-01-variant=no_mask", "finished", "0.1000 (no mask)", "6", "variant no_mask"],
    ]
    commands = result.out.partition("next:\n")[2]
    assert "runs diff nano-sweep-03-variant=no_norm nano-sweep-02-variant=null\n" in commands
    assert "no_mask" not in commands


@pytest.mark.usefixtures("sweeps_in_this_process")
def test_it_ends_with_what_its_seeds_tell(gptlite):
    grid = ["train", "-c", "nano.yaml", "--sweep", "train.lr=0.00001,0.02", "--name", "s"]
    assert "one seed each cannot tell which is better: --seeds 3 trains 3 of each" in gptlite(*grid).out
    ended = gptlite(*grid[:-1], "t", "--seeds", "3")
    assert ended.code == 0
    assert "sweep t: 6 runs" in ended.err
    best, worse = (line for line in ended.out.splitlines() if line.startswith("t-"))
    assert re.fullmatch(r"t-04-\S+ \(3 seeds\) +finished .* best +lr 0.02", best)
    assert re.fullmatch(r"t-01-\S+ \(3 seeds\) +finished .* \d\.\d{4} +0\.\d{4} to \d\.\d{4} +worse +lr 1.0e-05", worse)
    alone = gptlite("train", "-c", "nano.yaml", "--seeds", "2", "--name", "u")
    assert "which is better" not in alone.out
    assert "(2 seeds)" in alone.out


@pytest.mark.usefixtures("sweeps_in_this_process")
def test_a_diverged_point_does_not_stop_the_others_and_sets_the_exit_code(gptlite, monkeypatch):
    words = ["train", "-c", "nano.yaml", "--sweep", "train.lr=1e30,1e-2", "--jobs", "2"]
    result = gptlite(*words)
    assert result.code == 3
    end = json.loads(Path("runs/nano-sweep-02-lr=0.01/finished.json").read_text())
    header, good, bad = cells(result.out)
    assert header == ["run", "state", "bits/byte", "at", "differs"]
    assert good == ["nano-sweep-02-lr=0.01", "finished", f"{end['best_bits_per_byte']:.4f}", "6", "lr 0.01"]
    assert bad == ["nano-sweep-01-lr=1e+30", "diverged", "lr 1.0e+30"]
    assert "error: step " in result.err
    assert "[2/2] nano-sweep-02-lr=0.01 finished at step 6: " in result.err
    # Both are over: nothing is left to train, and the answer is the same.
    monkeypatch.setattr("gptlite.cli.sweep.subprocess.Popen", None)
    again = gptlite(*words, "--continue")
    assert (again.code, again.out) == (result.code, result.out)


@pytest.mark.usefixtures("sweeps_in_this_process")
def test_runs_of_a_sweep_over_epochs_are_over_when_their_updates_are_made(gptlite, monkeypatch):
    words = ["train", "-c", "nano.yaml", "--sweep", "train.epochs=0.02,0.05"]  # of 881 windows, in batches of 8
    result = gptlite(*words, "--jobs", "2")
    assert result.code == 0, result.err
    assert sorted((row[0], row[3]) for row in cells(result.out)[1:]) == [
        ("nano-sweep-01-epochs=0.02", "3"),
        ("nano-sweep-02-epochs=0.05", "6"),
    ]
    monkeypatch.setattr("gptlite.cli.sweep.subprocess.Popen", None)
    again = gptlite(*words, "--continue")
    assert (again.code, again.out) == (result.code, result.out)


GRID = ["--sweep", "train.lr=0.01,0.03", "--sweep", "model.n_head=1,2"]


def shell(folder: Path, command: str) -> subprocess.Popen[str]:
    """Start a command line as the leader of its process group, as a shell does."""
    environment = {**os.environ, "GPTLITE_THREADS": "1"}
    pipe = subprocess.PIPE
    return subprocess.Popen(
        f"exec {command}",
        shell=True,
        cwd=folder,
        env=environment,
        stdout=pipe,
        stderr=pipe,
        text=True,
        start_new_session=True,
    )


def sweep(folder: Path, *words: str) -> subprocess.Popen[str]:
    return shell(folder, shlex.join([sys.executable, "-m", "gptlite", "train", "-c", "nano.yaml", *words]))


def updates(folder: Path) -> list[int]:
    """The number of updates logged in each run."""
    return [path.read_bytes().count(b'"train"') for path in folder.glob("runs/*/metrics.jsonl")]


def wait_for_updates(process: subprocess.Popen[str], folder: Path, number: int, n_runs: int = 1) -> None:
    """Wait until so many updates are logged, and at least one of so many runs."""
    deadline = time.monotonic() + 120
    while sum(logged := updates(folder)) < number or sum(map(bool, logged)) < n_runs:
        if process.poll() is not None or time.monotonic() > deadline:
            break
        time.sleep(0.002)
    assert process.poll() is None, "it ended too soon"


def metrics(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The metrics of every run without those under `time`."""
    return {path.parent.name: numbers(Run(path.parent)) for path in folder.glob("runs/*/metrics.jsonl")}


def folder_of(parent: Path, name: str) -> Path:
    """Make a folder with the same text and a config of 40 updates."""
    folder = parent / name
    folder.mkdir()
    shutil.copy(parent / "story.txt", folder)
    config = (parent / "nano.yaml").read_text().replace("max_steps: 6", "max_steps: 40")
    (folder / "nano.yaml").write_text(config.replace("save: {every: 3}", "save: {every: 7}"))
    return folder


@pytest.mark.slow
@pytest.mark.usefixtures("sweeps_in_this_process")
def test_a_killed_sweep_ends_with_the_table_and_the_metrics_of_one_left_alone(gptlite, tmp_path, monkeypatch):
    alone, killed = folder_of(tmp_path, "alone"), folder_of(tmp_path, "killed")
    number = random.SystemRandom().randrange(2, 155)
    process = sweep(killed, *GRID, "--jobs", "2")
    wait_for_updates(process, killed, number)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    monkeypatch.chdir(killed)
    continued = gptlite("train", "-c", "nano.yaml", *GRID, "--continue")
    monkeypatch.chdir(alone)
    left_alone = gptlite("train", "-c", "nano.yaml", *GRID)
    table = continued.out
    assert (continued.code, left_alone.code) == (0, 0), continued.err
    assert left_alone.out == table, f"killed after {number}"
    assert [row[1] for row in cells(table)] == ["state", *["finished"] * 4]
    assert metrics(killed) == metrics(alone), f"killed after {number}"
    assert sorted(metrics(alone)) == [row[0] for row in sorted(cells(table)[1:])]


@pytest.mark.usefixtures("sweeps_in_this_process")
def test_a_run_that_another_process_trains_is_an_error_of_that_run_and_the_others_go_on(gptlite):
    words = ["train", "-c", "nano.yaml", *LR]
    assert gptlite(*words).code == 0
    longer = [*words, "--continue", "--set", "train.max_steps=8"]
    with Run(Path("runs/nano-sweep-01-lr=0.001")).lock():
        result = gptlite(*longer)
    assert (result.code, len(result.errors)) == (2, 1)
    assert "[1/2] nano-sweep-01-lr=0.001 failed with exit code 2" in result.err
    assert [row[1] for row in cells(result.out)[1:3]] == ["finished", "running"]
    assert "\nfailed: nano-sweep-01-lr=0.001\n" in result.out
    again = gptlite(*longer)
    assert (again.code, [row[1] for row in cells(again.out)[1:]]) == (0, ["finished", "finished"])


@pytest.mark.slow
@pytest.mark.usefixtures("sweeps_in_this_process")
def test_a_signal_saves_every_run_and_prints_the_command_that_continues(gptlite, tmp_path, monkeypatch):
    folder = folder_of(tmp_path, "interrupted")
    steps = ["--set", "train.max_steps=1000", "--set", "save.every=1000", "--set", "eval.every=1000"]
    process = sweep(folder, "--sweep", "train.lr=0.01,0.03", "--name", "it's", *steps, "--jobs", "2")
    # As a batch system that knows one process, then as a terminal.
    for signum, code, send in ((signal.SIGTERM, 143, os.kill), (signal.SIGINT, 130, os.killpg)):
        wait_for_updates(process, folder, sum(updates(folder)) + 20, n_runs=2)
        send(process.pid, signum)
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out) == (code, "")
        end, command = err.splitlines()[-2:]
        assert end == "sweep it's: stopped; every run is saved. 0 of 2 runs are finished. Continue with:"
        for run in Run.all(folder / "runs"):
            logged = [line["step"] for line in metrics(folder)[run.name]]
            assert valid_checkpoints(run.checkpoints)[-1].step == max(logged)
        if signum == signal.SIGTERM:
            process = shell(folder, command)
    monkeypatch.chdir(folder)
    soon = max(line["step"] for run in metrics(folder).values() for line in run) + 2
    words = shlex.split(command.replace("train.max_steps=1000", f"train.max_steps={soon}"))
    result = gptlite(*words[words.index("train") :])
    assert [row[1] for row in cells(result.out)[1:]] == ["finished"] * 2, result.err
