"""What scripts and notebooks use: events of a training, and training and comparison from Python."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import gptlite as package
from gptlite.errors import ConfigError
from gptlite.runs.run import Run
from gptlite.runs.summary import read_curve, read_run, read_samples


def test_events_say_what_happens_from_the_start_to_the_verdict(gptlite):
    result = gptlite("train", "-c", "nano.yaml", "--json")
    events = [json.loads(line) for line in result.out.splitlines()]
    kinds = [event.pop("event") for event in events]
    by_kind = {kind: [event for event, its in zip(events, kinds, strict=True) if its == kind] for kind in kinds}
    assert kinds[-1] == "end"
    (start,), (end,) = by_kind["start"], by_kind["end"]
    assert (start["run"], start["path"], start["config"]["train.max_steps"]) == ("nano", "runs/nano", 6)
    assert [event["text"] for event in by_kind["message"]] == [
        line for line in result.err.splitlines() if not line.startswith(("step", " "))
    ]
    summary = read_run(Run(Path(start["path"])))[0]
    assert [event["step"] for event in by_kind["log"]] == [1, 2, 3, 4, 5, 6]
    curve = [(each.step, each.bits_per_byte) for each in read_curve(summary)]
    assert [(event["step"], event["bits_per_byte"]) for event in by_kind["evaluation"]] == curve
    assert [(event["step"], event["text"]) for event in by_kind["sample"]] == read_samples(summary.run)
    assert [event["step"] for event in by_kind["checkpoint"]] == [0, 3, 6]
    assert (end["run"], end["path"], end["step"]) == ("nano", "runs/nano", 6)
    assert end["best_bits_per_byte"] == summary.best_bits_per_byte
    assert end["baselines"]["ppmd"] == summary.ppmd
    assert any(line.startswith("beside compressors of that text: ") for line in end["verdict"])


def test_python_trains_as_the_command_line_does_and_says_what_came_of_it(gptlite, capfd):
    assert gptlite("train", "-c", "nano.yaml", "--set", "run.seed=3").code == 0
    outcome = package.train("nano.yaml", ["run.seed=3"], name="own", progress=False)
    assert capfd.readouterr() == ("", "")
    assert (outcome.path, outcome.run.name) == (Path("runs/own"), "own")
    assert outcome.score == read_run(outcome.run)[0].best_bits_per_byte
    assert outcome.samples == read_samples(outcome.run)
    assert repr(outcome) == f"<run own: {outcome.score:.4f} bits per byte at step 6, 6 updates, in runs/own>"
    assert Path("runs/own/samples.jsonl").read_bytes() == Path("runs/nano/samples.jsonl").read_bytes()
    package.train("nano.yaml", data="story.txt", name="seen")
    assert "config: nano.yaml" in capfd.readouterr().err


def test_python_chooses_sizes_for_a_text_and_refuses_as_the_command_line_does(gptlite, monkeypatch):
    monkeypatch.setenv("GPTLITE_SPEED", "64")
    outcome = package.train(data=Path("story.txt"), minutes=0.02, overrides=["run.threads=1"], progress=False)
    assert outcome.run.info["minutes"] == 0.02
    with pytest.raises(ConfigError, match="--minutes -1: this must be a number above 0"):
        package.train(data="story.txt", minutes=-1, progress=False)


@pytest.mark.usefixtures("sweeps_in_this_process")
def test_python_compares_runs_by_their_seeds_as_runs_diff_does(gptlite):
    for lr, name in ((0.02, "a"), (0.5, "b")):
        arguments = ["train", "-c", "nano.yaml", "--set", f"train.lr={lr}", "--seeds", "2", "--name", name, "-q"]
        assert gptlite(*arguments).code == 0
    names = "a-01-seed=1", "b-01-seed=1"
    verdict = package.compare(*names)
    said = json.loads(gptlite("runs", "diff", *names, "--json").out)
    assert (verdict.answer, verdict.sentence) == (said["answer"], said["sentence"])
    assert repr(verdict).startswith(verdict.sentence)
    assert package.compare(Path("runs") / names[0], f"runs/{names[1]}").answer == verdict.answer


NOTEBOOK = """
import gptlite
run = gptlite.train("nano.yaml", name="noted")
run
"""


def test_a_notebook_shows_progress_and_the_result(gptlite):
    """In a real kernel, with the bar of tqdm.auto."""
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(NOTEBOOK)])
    nbclient.NotebookClient(notebook, timeout=60, kernel_name="python3").execute()
    outputs = notebook.cells[0].outputs
    shown = "".join(output.get("text", "") for output in outputs)
    assert "plan: " in shown
    assert "100%" in shown
    assert outputs[-1]["data"]["text/plain"].startswith("<run noted: ")


SWEEPS_IN_ONE_PROCESS = f"""\
#!{sys.executable}
import sys
sys.path[:0] = [{str(Path(__file__).parents[2])!r}, {str(Path(__file__).parent)!r}]
from conftest import train_sweeps_in_this_process
from gptlite.__main__ import main
train_sweeps_in_this_process(setattr)
main()
"""


@pytest.mark.slow
def test_the_script_of_the_documents_trains_decides_scores_samples_and_reports(gptlite, repository):
    section = (repository / "docs/comparing.md").read_text().partition("## In a script")[2]
    script = section.partition("```bash\n")[2].partition("```")[0].replace("-c small", "-c nano.yaml")
    for name in ("book.txt", "other.txt"):
        Path(name).write_text(Path("story.txt").read_text())
    Path("bin").mkdir()
    Path("bin/gptlite").write_text(SWEEPS_IN_ONE_PROCESS)
    Path("bin/gptlite").chmod(0o755)
    path = f"{Path.cwd() / 'bin'}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(["bash", "-e", "-c", script], check=True, env={**os.environ, "PATH": path})
    best = json.loads(gptlite("runs", "diff", "less-01-seed=1", "more-01-seed=1", "--json").out)["answer"] != "worse"
    (text,) = json.loads(Path("score.json").read_text())["texts"]
    score = text["rows"][0]
    assert text["name"] == "other.txt"
    assert score["run"] == ("less-01-seed=1" if best else "more-01-seed=1")
    assert 0 < score["bits_per_byte"] < 10
    samples = [json.loads(line) for line in Path("samples.json").read_text().splitlines()]
    assert len(samples) == 3
    assert all(sample["text"] for sample in samples)
    assert "more-01-seed=1" in Path("report.html").read_text()
