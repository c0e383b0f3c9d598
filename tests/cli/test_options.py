"""Every option of train, prepare and sweeps acts: one that is declared but not used fails here."""

from __future__ import annotations

import inspect
import shlex
import signal
from dataclasses import fields, replace
from pathlib import Path

import pytest

from gptlite.cli import app
from gptlite.cli.prepare import prepare
from gptlite.cli.sweep import SweepRun
from gptlite.cli.train.command import train
from gptlite.cli.train.options import TrainOptions
from gptlite.compute.choice import Choice
from gptlite.data.sources import named_datasets
from gptlite.data.sources.named_datasets import Card
from gptlite.errors import Interrupted

# For each parameter two command lines that differ in its option, and a text that only the first one leaves: on the
# screen, as the name of a file, or in the config of a run. There is a finished run `nano`.
NANO = ["-c", "nano.yaml"]
SHORT = ["-c", "nano.yaml", "--set", "train.max_steps=2"]
MORE = ["--resume", "nano", "--set", "train.max_steps=8"]
GRID = ["--sweep", "train.lr=0.01,0.02"]
TRAIN = {
    "config": (["-c", "other.yaml"], NANO, "runs/other/config.yaml"),
    "set_": ([*SHORT, "--set", "run.seed=77"], SHORT, "seed: 77"),
    "data": ([*SHORT, "--data", "more.txt"], SHORT, "more.txt: 1 file"),
    "minutes": ([*NANO, "--minutes", "0.02"], NANO, "max_minutes: 0.02"),
    "name": ([*SHORT, "--name", "mine"], SHORT, "runs/mine/config.yaml"),
    "resume": (MORE, MORE[:2], "runs/nano/checkpoints/step-00000008"),
    "continue_": (["--name", "nano", "--continue"], [*NANO, "--name", "nano"], "exit code 0"),
    "quiet": (SHORT, [*SHORT, "-q"], "config: nano.yaml"),
    "verbose": ([*SHORT, "--verbose"], SHORT, "micro_batch_size "),
    "dry_run": ([*SHORT, "--dry-run"], SHORT, "No run was made."),
    "json_": ([*SHORT, "--dry-run", "--json"], [*SHORT, "--dry-run"], '{\n  "device": "cpu"'),
    "sweep": ([*NANO, *GRID], NANO, "sweep nano-sweep: 2 runs"),
    "seeds": ([*NANO, "--seeds", "2"], NANO, "sweep nano-sweep: 2 runs"),
    "jobs": ([*NANO, *GRID, "--jobs", "2"], [*NANO, *GRID], "2 threads"),
    "offline": ([*NANO, "--data", "plays", "--offline"], [*NANO, "--data", "plays"], "downloads are forbidden"),
    "init": ([*SHORT, "--init", "nano"], SHORT, "18 of 18 tokens as they were"),
    "nproc": ([*SHORT, "--nproc", "2"], SHORT, "2 processes train"),
    "clock": (["--clock", "nano"], NANO, "it has no record of its clock"),
}
PREPARE = {
    "config": (["-c", "other.yaml"], NANO, "tokenizer       bpe, "),
    "set_": ([*NANO, "--set", "data.val_fraction=0.5"], NANO, "training        7,846 tokens"),
    "data": ([*NANO, "--data", "more.txt"], NANO, "text            more.txt"),
    "name": ([*NANO, "--name", "tale"], NANO, "data/prepared/tale-"),
    "verify": ([*NANO, "--verify"], NANO, "the text is not prepared with these keys"),
    "list_": (["--list"], NANO, "plays             by Shakespeare"),
    "offline": ([*NANO, "--data", "plays", "--offline"], [*NANO, "--data", "plays"], "downloads are forbidden"),
}
CASES = [("train", name, case) for name, case in TRAIN.items()]
CASES += [("prepare", name, case) for name, case in PREPARE.items()]


def test_every_parameter_has_a_case():
    assert set(inspect.signature(train).parameters) == set(TRAIN)
    assert set(inspect.signature(prepare).parameters) == set(PREPARE)


@pytest.mark.parametrize(("command", "case"), [pytest.param(c, case, id=f"{c}-{name}") for c, name, case in CASES])
@pytest.mark.parametrize("has_option", [True, False])
def test_the_option_acts(gptlite, trained, monkeypatch, command, case, has_option):
    def start(run: SweepRun, arguments: object, environment: dict[str, str]) -> None:
        raise Interrupted(signal.SIGTERM, f"{environment['GPTLITE_THREADS']} threads")

    def run_in_processes(n: int, arguments: object) -> None:
        raise Interrupted(signal.SIGTERM, f"{n} processes train")

    monkeypatch.setattr("gptlite.cli.sweep.start", start)
    monkeypatch.setattr("gptlite.compute.launch.run_in_processes", run_in_processes)
    plays = Card("plays", "by Shakespeare", ("ftp://nowhere.test/plays",), "0" * 64, 9, "none")
    monkeypatch.setattr(named_datasets, "cards", lambda: [plays])
    monkeypatch.setattr(named_datasets, "find_card", {"plays": plays}.get)
    monkeypatch.setattr("gptlite.cli.sweep.available_threads", lambda: Choice(4, ""))
    if command == "prepare":
        Path("data/prepared").rename("data/before")
    Path("more.txt").write_text("the cat sat on the hill.\n" * 40)
    other = Path("nano.yaml").read_text().replace("kind: char", "kind: bpe, vocab_size: 300")
    Path("other.yaml").write_text(other)
    arguments, without, text = case
    result = gptlite(command, *(arguments if has_option else without))
    left = [f"exit code {result.code}", result.out, result.err, *map(str, Path("runs").rglob("*"))]
    left += [path.read_text() for path in Path("runs").glob("*/config.yaml")]
    assert (text in "\n".join(left)) is has_option, left


def test_a_sweep_hands_on_every_option_to_its_runs_and_to_the_command_that_continues_it(monkeypatch):
    found: list[TrainOptions] = []
    monkeypatch.setenv("GPTLITE_OFFLINE", "")  # which --offline sets
    more = ["--jobs", "2", "--minutes", "0.5", "--offline", "--init", "base", "--verbose"]
    monkeypatch.setattr("gptlite.cli.sweep.run_sweep", found.append)
    app.run(["train", *NANO, "--set", "run.seed=1", "--data", "x", "--name", "it's", "-q", *GRID, *more])
    (options,) = found
    unset = {field.name for field in fields(options) if getattr(options, field.name) == field.default}
    # refused beside --sweep, except for the last
    assert unset == {"resume", "dry_run", "json", "clock", "nproc", "continue_"}
    _, *again = shlex.split(options.to_continue_sweep)
    app.run(again)
    assert found[1] == replace(options, continue_=True)
    app.run(["train", *options.of_every_run, *GRID])
    assert found[2] == replace(options, name=None, jobs=None)  # a run has a name and a process of its own
