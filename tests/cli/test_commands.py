"""Commands as users type them, and the package as they import it."""

from __future__ import annotations

import json
import os
import pydoc
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from training_runs import numbers, signal_in

import gptlite as package
from gptlite.config.loading import load_config
from gptlite.errors import StorageError
from gptlite.inference.language_model import LanguageModel
from gptlite.runs.run import Run, runs_folder


def test_train_shows_the_config_used_the_samples_and_what_to_type_next(gptlite):
    result = gptlite("train", "-c", "nano.yaml")
    assert result.code == 0
    assert "config: nano.yaml" in result.err
    lines = result.err.splitlines()
    steps = [line.split()[0] for line in lines if line.strip() and line.split()[0] in {"0", "3", "6"}]
    assert steps == ["0", "3", "6"]
    commands = [shlex.split(line) for line in result.out.splitlines()[-3:]]
    assert [command[-3:] for command in commands[:1]] == [["nano", "--prompt", "..."]]
    assert commands[1][-2:] == ["eval", "nano"]
    assert commands[2][-2:] == ["--logdir", "runs"]
    assert all(shutil.which(command[0]) for command in commands)


def test_resolved_settings_are_one_line_and_their_reasons_are_in_run_json(gptlite):
    chosen = ["run.device=cpu", "run.precision=fp32", "run.attention=plain", "train.optimizer=adamw"]
    shown = gptlite(
        "train", "-c", "nano.yaml", "--verbose", *(word for value in chosen for word in ("--set", value))
    ).err
    line = r"device cpu, precision fp32, attention plain, threads 1, optimizer adamw, .*, micro_batch_size 8"
    assert len(re.findall(f"^{line}$", shown, re.MULTILINE)) == 1
    reasons = json.loads(Path("runs/nano/run.json").read_text())["reasons"]
    assert reasons["run.precision"] == {"value": "fp32", "reason": "given"}
    assert reasons["train.micro_batch_size"] == {"value": 8, "reason": "at most 4,096 tokens per forward pass"}


def test_resume_takes_the_newest_unfinished_run_and_only_changes_that_do_not_affect_past_steps(gptlite, trained):
    (trained / "finished.json").unlink()
    assert gptlite("train", "-c", "nano.yaml").code == 0
    result = gptlite("train", "--resume", "latest", "--set", "train.max_steps=8")
    assert result.code == 0
    assert "run: runs/nano\n" in result.err
    assert (trained / "checkpoints/step-00000008").is_dir()
    refused = gptlite("train", "--resume", "nano", "--set", "train.lr=1")
    assert refused.refuses("train.lr is 0.02 in this run and cannot become 1.0")


def test_greedy_samples_are_equal_seeds_change_the_others_and_of_several_the_first_is_that_of_one(gptlite, trained):
    greedy, again = (gptlite("sample", "--prompt", "the ", "-t", "0").out for _ in range(2))
    assert greedy == again
    assert greedy.startswith("the ")
    drawn = [gptlite("sample", "--max-new-tokens", "30", "--seed", str(seed)).out for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    three = gptlite("sample", "--max-new-tokens", "30", "--seed", "1", "-n", "3").out
    texts = [part.split("\n", 1)[1] for part in three.split("--- ")[1:]]
    assert texts[0] == drawn[0]
    assert len(set(texts)) == 3


def test_a_sample_may_be_longer_than_the_context_and_so_may_the_prompt_and_it_ends_before_a_stop_text(gptlite, trained):
    words = ["sample", "--prompt", "the cat sat on the mat.", "--max-new-tokens", "50"]
    result = gptlite(*words)
    assert result.code == 0
    assert "--prompt: of 23 tokens, the model sees only the last 16 (its context)" in result.err
    free = result.out.removesuffix("\n")
    assert len(free) >= 23 + 40
    stop = free[43:45]
    assert gptlite(*words, "--stop", stop).out.removesuffix("\n") == free[: free.index(stop, 23)]


def test_a_checkpoint_folder_copied_alone_samples_and_scores_a_file(gptlite, trained, tmp_path):
    copied = tmp_path / "elsewhere"
    shutil.copytree(trained / "checkpoints/step-00000006", copied)
    shutil.rmtree("runs")
    shutil.rmtree("data")
    assert gptlite("sample", str(copied), "--prompt", "the").code == 0
    assert gptlite("eval", str(copied), "--file", "story.txt").code == 0
    assert gptlite("eval", str(copied)).refuses("score a text with --file")


def test_prepare_prints_what_it_made_and_where_and_training_finds_it(gptlite):
    result = gptlite("prepare", "-c", "nano.yaml", "--name", "tale")
    assert result.code == 0
    assert "story.txt" in result.out
    folder = Path(result.out.splitlines()[-1].split()[-1])
    assert (folder / "MANIFEST.json").is_file()
    assert folder.name.startswith("tale-")
    assert gptlite("prepare", "-c", "nano.yaml", "--name", "tale").out == result.out
    assert gptlite("train", "-c", "nano.yaml").code == 0
    assert [path for path in Path("data/prepared").iterdir() if path.is_dir()] == [folder]


def test_prepare_shows_compressors_only_for_texts_long_enough(gptlite):
    Path("short.txt").write_text("the cat sat on the mat.\n" * 40)
    short = gptlite("prepare", "-c", "nano.yaml", "--data", "short.txt")
    assert "short.txt: 1 file, 960 bytes of text" in short.err
    assert "validation      96 tokens, 96 bytes (1.00 per token), 1 document\n" in short.out
    assert "split           validation is the end of the document\n" in short.out
    assert "bits per byte   of the validation text: byte frequencies " in short.out
    assert " xz -9 " in gptlite("prepare", "-c", "nano.yaml").out


def test_the_runs_folder_comes_from_the_config_then_the_environment(gptlite, monkeypatch):
    monkeypatch.delenv("GPTLITE_RUNS", raising=False)
    assert runs_folder("runs") == Path("runs")
    monkeypatch.setenv("GPTLITE_RUNS", "other")
    assert runs_folder("mine") == Path("mine")
    assert runs_folder("runs") == Path("other")
    outcome = package.train("nano.yaml", ["train.max_steps=2"], name="mine")
    assert (outcome.run.path, outcome.state.step) == (Path("other/mine"), 2)
    assert load_config(outcome.run.path / "config.yaml").train.max_steps == 2
    assert package.load("mine").generate("the ", max_new_tokens=3)
    assert gptlite("sample").code == 0
    assert gptlite("train", "--resume", "mine").code == 0
    assert gptlite("train", "-c", "nano.yaml").code == 0
    assert Path("other/nano/config.yaml").is_file()


def test_from_python_a_run_is_loaded_used_scored_and_shown_in_one_line(gptlite, trained):
    assert {"load", "train", "__version__"} <= set(dir(package))
    assert "lambda" not in pydoc.render_doc(package.load)
    model = package.load("runs/nano")
    assert isinstance(model.generate("the ", max_new_tokens=5), str)
    assert model.tokenizer.decode(model.tokenizer.encode("the cat")) == "the cat"
    assert 0 < model.score("the cat sat on the mat.").bits_per_byte < 10
    # 16 * 18 + 16 * 16 for the tables, 12 * 16 * 16 for the layer, 3 * 16 for the LayerNorms, the head is tied
    shown = "<LanguageModel: 3,664 parameters, 1 layer of 16, context 16, char tokenizer, on cpu>"
    assert str(model) == shown


def environment(**more: str) -> dict[str, str]:
    """That of a process which imports this package."""
    return {**os.environ, "PYTHONPATH": str(Path(package.__file__).parents[1]), **more}


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, env=environment(), check=False)


def test_help_tables_and_refusals_need_neither_torch_nor_the_slow_part_of_rich(gptlite, trained):
    shutil.copytree("runs/nano", "runs/a")
    result = run_python("""
import sys
sys.modules["torch"] = sys.modules["rich.console"] = None
from pathlib import Path
from gptlite.cli.app import run
from gptlite.runs.run import Run
for line in ("--help", "--version", "train --help", "runs", "runs diff nano a"):
    assert run(line.split()) == 0, line
with Run(Path("runs/nano")).lock():
    for line in ("train -c gone.yaml", "train -c nano.yaml --name nano", "train --resume nano"):
        assert run(line.split()) == 2, line
""")
    assert result.returncode == 0, result.stderr


def test_output_into_a_closed_pipe_ends_quietly(gptlite, trained):
    sample = (
        f"{sys.executable} -m gptlite sample --max-new-tokens 3000 2>errors.txt | head -c 5; echo ${{PIPESTATUS[0]}}"
    )
    done = subprocess.run(["bash", "-c", sample], capture_output=True, text=True, env=environment(), check=True)
    assert done.stdout.endswith("0\n")
    assert len(done.stdout) == 5 + len("0\n")
    assert "Traceback" not in Path("errors.txt").read_text()


@pytest.mark.parametrize(("stream", "words"), [("stderr", []), ("stdout", ["--json", "-q"])])
def test_training_continues_when_nobody_reads_what_it_says(gptlite, monkeypatch, stream, words):
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", buffering=1) as unread:
        monkeypatch.setattr(sys, stream, unread)
        result = gptlite("train", "-c", "nano.yaml", *words)
    assert (result.code, result.err) == (0, "")
    assert Path("runs/nano/finished.json").is_file()


@pytest.mark.parametrize(("line", "code"), [("train -c gone.yaml 2>&-", 2), ("--version 1>&-", 0)])
def test_closed_standard_streams_are_accepted(line, code):
    command = ["bash", "-c", f"{shlex.quote(sys.executable)} -m gptlite {line}"]
    result = subprocess.run(command, capture_output=True, env=environment(), check=False)
    assert (result.returncode, result.stdout, result.stderr) == (code, b"", b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk_under_standard_output_is_a_storage_error(gptlite, trained, monkeypatch):
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        result = gptlite("runs")
    assert result.code == 4
    assert result.err.startswith("error: standard output: cannot write: No space left on device. ")


@pytest.mark.parametrize(("handler", "code", "out"), [("default_int_handler", 130, ""), ("SIG_IGN", 0, "gptlite ")])
def test_ctrl_c_during_imports_exits_quietly_unless_ignored(handler, code, out):
    program = f"""
import signal, sys
from importlib.abc import MetaPathFinder
from gptlite.__main__ import main

class PressCtrlC(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "gptlite.cli":
            signal.raise_signal(signal.SIGINT)

signal.signal(signal.SIGINT, signal.{handler})
sys.meta_path.insert(0, PressCtrlC())
sys.argv = ["gptlite", "--version"]
main()
"""
    result = run_python(program)
    assert (result.returncode, result.stderr) == (code, "")
    assert result.stdout.startswith(out)


def test_config_lists_the_shipped_configs_and_prints_them(gptlite, repository):
    shipped = {path.stem: path for path in (repository / "configs").glob("*.yaml")}
    listed = gptlite("config").out.splitlines()
    assert sorted(line.split()[0] for line in listed) == sorted(shipped)
    assert listed[-1].split(maxsplit=1)[1].startswith("A very small model for trying things out")
    for name, path in shipped.items():
        Path("my.yaml").write_text(gptlite("config", name).out)
        assert load_config(Path("my.yaml")) == load_config(path)


def test_a_sample_cut_short_ends_its_line_before_the_error(gptlite, trained, monkeypatch):
    def cut_short():
        yield "half a li"
        raise KeyboardInterrupt

    monkeypatch.setattr(LanguageModel, "samples", lambda *_, **__: iter([cut_short()]))
    result = gptlite("sample", "--prompt", "the ", "-n", "2")
    assert (result.code, result.out) == (130, "--- 1 of 2\nthe half a li\n")
    assert result.err.endswith("\ninterrupted\n")


def test_a_continued_finished_run_is_unfinished_until_it_ends_again(gptlite, trained, monkeypatch):
    with monkeypatch.context() as patch:
        signal_in(patch, 7, signal.SIGTERM)
        stopped = gptlite("train", "--resume", "nano", "--set", "train.max_steps=10", "--quiet")
    assert stopped.code == 143
    _, stopped_at, _, advice = stopped.err.splitlines()  # no errors
    assert stopped_at.startswith("run nano: stopped and saved after step 8 (SIGTERM)")
    assert advice.endswith("gptlite train --resume nano")
    result = gptlite("train", "--resume", "latest", "--quiet")
    assert (result.code, result.err) == (0, "")
    assert "saved in runs/nano" in result.out
    assert (trained / "checkpoints/step-00000010").is_dir()


def test_printed_commands_find_a_run_in_another_folder(gptlite):
    result = gptlite("train", "-c", "nano.yaml", "--set", "run.dir=far/away")
    sample = next(line for line in result.out.splitlines() if "gptlite sample " in line)
    assert shlex.split(sample)[-3] == "far/away/nano"
    assert gptlite("sample", "far/away/nano").code == 0


def test_a_moved_project_can_be_evaluated_and_resumed(gptlite, trained, tmp_path, monkeypatch):
    (tmp_path / "moved").mkdir()
    for name in ("runs", "data"):
        shutil.move(name, tmp_path / "moved" / name)
    monkeypatch.chdir(tmp_path / "moved")
    assert gptlite("eval").code == 0
    assert gptlite("train", "--resume", "nano", "--set", "train.max_steps=8").code == 0


def test_continue_with_only_a_name_continues_the_run_unchanged(gptlite, trained):
    result = gptlite("train", "--name", "nano", "--continue")
    assert result.code == 0
    assert (
        "nano is finished after 6 updates. To train on, --set a larger train.max_steps, train.epochs or " in result.err
    )


def test_a_run_that_ended_at_its_first_checkpoint_can_be_continued(gptlite, monkeypatch):
    wanted = ["--set", "log.attention=true", "--set", "log.tensorboard=true"]  # which is logged before that checkpoint

    def full(*_: object, **__: object) -> None:
        raise StorageError("cannot write: no space left on device.", "checkpoints")

    with monkeypatch.context() as patch:
        patch.setattr("gptlite.training.trainer.save_checkpoint", full)
        assert gptlite("train", "-c", "nano.yaml", "--name", "y", *wanted).code == 4
    assert Path("runs/y/metrics.jsonl").stat().st_size > 0
    again = gptlite("train", "-c", "nano.yaml", "--name", "y", "--continue", *wanted)
    assert again.code == 0, again.err
    assert gptlite("train", "-c", "nano.yaml", "--name", "z", *wanted).code == 0
    y, z = (numbers(Run(Path("runs", name))) for name in "yz")
    assert y == z
