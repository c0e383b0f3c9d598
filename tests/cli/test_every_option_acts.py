"""Every option of `gptlite sample`, `eval` and `runs` changes what the command does; a new one needs a line here."""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path

import pytest
import typer

from gptlite.cli import app
from gptlite.cli.eval.command import EXCLUDES, NEEDS
from gptlite.cli.sample import command as sample_command
from gptlite.inference import memorization

SHORT = ["--prompt", "the ", "--set", "sample.max_new_tokens=20"]
DRAW = [*SHORT, "-t", "1.5"]
BEAMS = [*SHORT, "--beams", "3", "-n", "2"]

WAVES = "runs/inner/waves"

# By command and parameter: arguments without the option, and what to add.
EFFECTS = {
    ("sample",): {
        "run": (DRAW, ["other"]),
        "prompt": (DRAW, ["--prompt", "a dog "]),
        "prompt_file": (DRAW, ["--prompt-file", "text.txt"]),
        "max_new_tokens": (DRAW, ["--max-new-tokens", "5"]),
        "temperature": (SHORT, ["-t", "2"]),
        "top_k": (DRAW, ["--top-k", "2"]),
        "top_p": (DRAW, ["--top-p", "0.3"]),
        "min_p": (DRAW, ["--min-p", "0.5"]),
        "repetition_penalty": (DRAW, ["--repetition-penalty", "2"]),
        "beams": (SHORT, ["--beams", "3"]),
        "length_penalty": ([*BEAMS, "--stop", " "], ["--length-penalty", "0"]),
        "n": (DRAW, ["-n", "2"]),
        "seed": (DRAW, ["--seed", "3"]),
        "stop": (DRAW, ["--stop", " ", "--stop", "a", "--stop", "t"]),
        "stop_tokens": (DRAW, [word for i in range(10) for word in ("--stop-token", str(i))]),
        "unknown": ([*DRAW, "--prompt", "the\u00e9"], ["--unknown", "skip"]),
        "explain": (DRAW, ["--explain"]),
        "as_json": (DRAW, ["--json"]),
        "out": (DRAW, ["--out", "written.txt"]),
        "interactive": (["-t", "1.5"], ["--interactive"]),
        "logprob": (SHORT[:2], ["--logprob", "cat"]),
        "context_length": ([WAVES, *DRAW, "--json"], ["--context", "32"]),
        "checkpoint": (DRAW, ["--checkpoint", "3"]),
        "set_": (DRAW, ["--set", "sample.n=2"]),
    },
    ("eval",): {
        "runs": ([], ["other"]),
        "files": ([], ["--file", "text.txt"]),
        "stride": ([], ["--stride", "4"]),
        "by_position": ([], ["--by-position"]),
        "memorised": ([], ["--memorised"]),
        "exposure_bias": ([], ["--exposure-bias"]),
        "per_token": ([], ["--per-token"]),
        "attention": ([], ["--attention", "the cat"]),
        "follow": ([], ["--follow", "the cat"]),
        "out": (["--by-position"], ["--out", "written.svg"]),
        "context_length": ([WAVES], ["--context", "32"]),
        "checkpoint": ([], ["--checkpoint", "3"]),
        "as_json": ([], ["--json"]),
        "set_": (["--file", "wide.txt"], ["--set", "data.encoding=utf-16"]),
    },
    ("runs", "list"): {
        "folder": ([], ["runs/inner"]),
        "sort": ([], ["--sort", "lr"]),
        "filter_": ([], ["--filter", "oth"]),
        "no_fold": ([], ["--no-fold"]),
        "as_json": ([], ["--json"]),
    },
    ("runs", "diff"): {
        "a": (["other"], ["nano"]),
        "b": (["nano"], ["other"]),
        "by": (["nano"], ["--by", "lr"]),
        "margin": (["nano", "other", "--json"], ["--margin", "1"]),
        "as_json": (["nano", "other"], ["--json"]),
        "exit_code": (["nano", "other"], ["--exit-code"]),
    },
}


def command_of(names: tuple[str, ...]):
    found = typer.main.get_command(app.app)
    for name in names:
        found = found.commands[name]
    return found


@pytest.fixture
def runs(gptlite, trained, monkeypatch):
    """Copies of the run nano: `other` has another learning rate, `seed` another seed. WAVES has other positions."""
    waves = ["--set", "model.position=sinusoidal", "--set", f"run.dir={Path(WAVES).parent}", "--name", "waves"]
    assert gptlite("train", "-c", "nano.yaml", *waves).code == 0
    for name, encoding in (("text.txt", "utf-8"), ("wide.txt", "utf-16")):
        Path(name).write_text("a dog ran to the mat. the cat", encoding)
    for name, old, new in (("other", "  lr: 0.02", "  lr: 0.01"), ("seed", "seed: 1337", "seed: 1")):
        config = Path(shutil.copytree(trained, f"runs/{name}"), "config.yaml")
        assert old in config.read_text()
        config.write_text(config.read_text().replace(old, new))
    shutil.copytree(trained, "runs/inner/nano")
    monkeypatch.setitem(memorization.SAMPLING, "n", 3)
    monkeypatch.setitem(memorization.SAMPLING, "max_new_tokens", 20)


@pytest.mark.parametrize("names", EFFECTS, ids=" ".join)
@pytest.mark.usefixtures("runs")
def test_every_option_changes_what_the_command_does(gptlite, names, monkeypatch):
    pieces: list[str] = []
    emit = sample_command.emit
    monkeypatch.setattr(sample_command, "emit", lambda text: (pieces.append(text), emit(text)))

    def outcome(arguments: list[str]) -> tuple[object, ...]:
        """The outcome of a command, and the pieces in which a text is streamed. What it writes is removed."""
        pieces.clear()
        before = set(Path().rglob("*"))
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"the \n"), encoding="utf-8"))
        result = gptlite(*names, *arguments)
        written = {path: path.read_text() for path in sorted(Path().rglob("*")) if path not in before}
        for path in written:
            path.unlink()
        return result.code, result.out, result.err, list(pieces), written

    effects = EFFECTS[names]
    assert set(effects) == {param.name for param in command_of(names).params}
    outcomes: dict[tuple[str, ...], tuple[object, ...]] = {}  # of the same command for many options
    for name, (without, added) in effects.items():
        acted, acts_by_code = outcome([*without, *added]), name == "exit_code"
        assert acted[0] == (12 if acts_by_code else 0), (name, acted)  # one seed each: cannot tell
        if tuple(without) not in outcomes:
            outcomes[tuple(without)] = outcome(without)
        compared = slice(None if acts_by_code else 1, None)
        assert acted[compared] != outcomes[tuple(without)][compared], name


def test_every_option_of_eval_says_to_which_outputs_it_applies():
    options = {max(param.opts, key=len) for param in command_of(("eval",)).params if param.param_type_name == "option"}
    named = {name for table in (EXCLUDES, NEEDS) for option, others in table.items() for name in (option, *others)}
    assert named == options - {"--checkpoint", "--set"}
