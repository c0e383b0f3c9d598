"""Mistakes of a user: one line that says where, what is wrong and what to do, the exit code, and nothing written."""

from __future__ import annotations

import errno
import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.main import get_command

from gptlite.cli import app
from gptlite.config.keys import KEYS
from gptlite.other_programs import MEANINGS
from gptlite.runs.run import Run


def set_(key: str, value: object) -> list[str]:
    return ["--set", f"{key}={value}"]


CASES = [
    (["--data", "gone.txt"], "error: --data: there is no file, folder or data set named gone.txt. "),
    (["--data", "latin.txt"], "latin.txt: the text is not valid utf-8 at byte 3"),
    (["--data", "short.txt"], "Use --set model.block_size=8 or less"),
    (set_("train.learning_rate", 1), "--set: train.learning_rate is not a key of the config. Did you mean train.lr?"),
    (set_("model.n_layer", "two"), "model.n_layer is two, but it must be a whole number >= 1."),
    (["--teacher-forcing-ratio", "0.5"], "train.scheduled_sampling is the opposite"),
    (
        [
            *set_("model.dropout", 0.1),
            *(f"--set=model.{place}_dropout=0" for place in ("embedding", "attention", "residual")),
        ],
        "model.dropout is 0.1, but every place has a dropout of its own. Use --set model.dropout=0, or",
    ),
    (set_("train.lr", ".nan"), "train.lr is .nan, but it must be auto or a number > 0."),
    (["-c", "gone.yaml"], "error: --config gone.yaml: there is no such config here"),
    (set_("data.source", "gone.txt"), "error: data.source: there is no file, folder or data set named gone.txt. "),
    (["-c", "nothing.yaml"], "nothing.yaml: no key is set here."),
    (["--continue"], "error: --continue has no effect without --name or --sweep. Add that, or leave it out."),
    (["--resume", "gone"], "--resume gone: there is no run of this name in runs"),
    (["--resume", "a", "--data", "b"], "error: --data cannot be combined with --resume. Leave one of them out."),
    (["--name", "a/b"], "run a/b: a run cannot have this name. A name has"),
    (["--minutes", "nan"], "error: --minutes nan: this must be a number above 0."),
    (["--minutes", "1", *set_("train.max_steps", 3)], "--set: train.max_steps is 3 and max_minutes is 1, but only one"),
    (
        ["--minutes", "1", "--data", "short.txt"],
        "error: --minutes 1: the text has 10 bytes, too few to learn from. Give",
    ),
    (["--minutes", "1e-7"], "error: --minutes 1e-07: 1e-07 minutes are 0 updates of the smallest model"),
    (set_("run.device", "cuda"), "run.device is cuda, and torch finds no such device"),
]


@pytest.mark.parametrize(("arguments", "message"), CASES, ids=[" ".join(words) for words, _ in CASES])
def test_train_refuses_it_in_one_line_and_writes_no_run(gptlite, arguments, message):
    Path("nothing.yaml").write_bytes(b"")
    Path("latin.txt").write_bytes("caf\xe9 au lait".encode("latin-1"))
    Path("short.txt").write_text("0123456789")
    result = gptlite(
        "train", *([] if "-c" in arguments or "--resume" in arguments else ["-c", "nano.yaml"]), *arguments
    )
    assert (result.code, len(result.errors)) == (2, 1)
    assert message in f"error: {result.errors[0]}"
    assert "Traceback" not in result.err
    assert not Path("runs").exists()


ADVISED = [
    ["prepare", "-c", "nano.yaml", "--data", "latin.txt"],
    ["prepare", "-c", "nano.yaml", "--data", "records.jsonl"],
    ["prepare", "-c", "nano.yaml", *set_("tokenizer.vocab_size", 300)],
    ["prepare", "-c", "nano.yaml", *set_("data.separator", "x"), *set_("data.documents", "lines")],
    ["prepare", "-c", "nano.yaml", *set_("model.variant", "no_residual")],
    ["sample", "--prompt-file", "latin.txt", "--unknown", "skip"],
    ["eval", "--file", "wide.txt"],
]


@pytest.mark.parametrize("arguments", ADVISED, ids=" ".join)
def test_each_value_that_a_refusal_advises_can_be_pasted_behind_the_command(gptlite, trained, arguments):
    Path("latin.txt").write_bytes(b"caf\xe9 au lait, the cat sat on the mat. " * 40)
    Path("wide.txt").write_bytes("the cat sat on the mat. ".encode("utf-16"))
    Path("records.jsonl").write_text("{the cat sat on the mat}\n" * 40)
    refused = gptlite(*arguments)
    assert refused.code == 2
    advised = re.findall(r"(?<=--set )\S+\w", refused.err)
    assert advised
    for value in advised:
        assert gptlite(*arguments, "--set", value).code == 0


def test_every_problem_of_a_config_is_reported_at_once_with_its_line(gptlite):
    Path("bad.yaml").write_text("train:\n  lr: fast\n  momentun: 0.9\nmodel:\n  n_layer: 0\n")
    result = gptlite("train", "-c", "bad.yaml")
    assert result.code == 2
    assert [error.partition(": ")[0] for error in result.errors] == ["bad.yaml:2", "bad.yaml:3", "bad.yaml:5"]


LONG = "x" * 300
REFUSED = [
    (
        "train -c nano.yaml --name nano",
        2,
        "run nano: this name is taken. Continue that run with --resume nano, or choose another name such as",
    ),
    ("train -c nano.yaml --set run.dir=story.txt/runs", 4, "error: story.txt"),
    (
        "train -c nano.yaml --set eval.prompt=\u0416",
        2,
        "error: eval.prompt: the tokenizer does not know '\u0416' (U+0416): it",
    ),
    ("sample data", 2, "error: data: this is not the folder of a run, since it has no config.yaml."),
    ("sample --temperature -1", 2, "--temperature: sample.temperature is -1.0, but it must be a number >= 0."),
    ("sample --checkpoint 5", 2, "there is no checkpoint 5. Give best, latest or a saved step: 3, 6."),
    ("sample --prompt cat\u00e9", 2, "error: --prompt: the tokenizer does not know '\u00e9' (U+00E9): it knows"),
    ("sample --set run.dir=x", 2, "error: --set run.dir: gptlite sample does not use this key. It uses"),
    ("eval --set model.n_layer=9", 2, "error: --set model.n_layer: gptlite eval does not use this key. It uses"),
    (
        "sample runs/nano/checkpoints/step-00000006 --checkpoint best",
        2,
        "step-00000006: this is the folder of one checkpoint, so no other can be chosen. Leave out best.",
    ),
    *(
        (f"{command} {LONG}", 4, "File name too long. Choose a shorter name.")
        for command in ("train --resume", "sample", "sample --out", "eval --file", "runs")
    ),
]


@pytest.mark.parametrize(("line", "code", "message"), REFUSED, ids=[line.replace(LONG, "LONG") for line, *_ in REFUSED])
def test_what_cannot_be_done_is_refused_in_one_line(gptlite, trained, line, code, message):
    result = gptlite(*line.split())
    assert (result.code, len(result.errors)) == (code, 1)
    assert message in result.err
    assert [path.name for path in Path("runs").iterdir()] == ["nano"]


def test_a_locked_run_is_refused_and_the_holder_named(gptlite, trained):
    with Run(trained).lock():
        result = gptlite("train", "--resume", "nano")
    assert result.refuses(f"pid {os.getpid()}")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tran"], "gptlite: there is no command tran. Did you mean train?"),
        (["generate"], "gptlite: there is no command generate. Use gptlite sample --prompt TEXT."),
        (["frobnicate"], "gptlite: there is no command frobnicate. See gptlite --help."),
        (["config", "smal"], "smal: there is no such config here, in configs/ or built in. The"),
        (["train", "--nmae", "x"], "gptlite train: there is no option --nmae. Did you mean --name?"),
        (["train", "--hlep"], "gptlite train: there is no option --hlep. See gptlite train --help."),
        (["train", "--lr", "0.01"], "gptlite train: there is no option --lr. Did you mean --set train.lr=VALUE?"),
        (["train", "--max-steps=9"], "gptlite train: there is no option --max-steps. Did you mean --set train.max"),
        (["train", "-qx"], "gptlite train: there is no option -x. See gptlite train --help."),
        (["sample", "--lr", "3"], "gptlite sample: there is no option --lr. See gptlite sample --help."),
        (["--verison"], "gptlite: there is no option --verison. Did you mean --version?"),
        (["train", "--name"], "gptlite train: option '--name' requires an argument. See gptlite train --help."),
        (
            ["prepare", "a b", *"bcd"],
            "gptlite prepare: unexpected argument 'a b', b, c and 1 more. Quote globs, and write --data "
            "before a text, --config before "
            "a config, --set before a key=value.",
        ),
        (["sample", "nano", "the cat"], "gptlite sample: unexpected argument 'the cat'. Write --prompt before a text"),
        (["runs", "diff", *"abc"], "gptlite runs diff: unexpected argument c. See gptlite runs diff --help."),
        (["train", "--config", "a", "-c", "b"], "--config: this option is given more than once. Keep one of its"),
        (
            ["sample", "--top-k", "many"],
            "gptlite sample: invalid value for '--top-k': this must be a valid integer. See",
        ),
        (["runs", "diff"], "gptlite runs diff: missing argument 'A'. See gptlite runs diff --help."),
    ],
)
def test_usage_errors_take_the_same_form(gptlite, arguments, message):
    result = gptlite(*arguments)
    assert result.code == 2
    assert result.err.startswith(f"error: {message}")
    assert result.err.count("\n") == 1


# What users of nanoGPT, Hugging Face and llama.cpp write, and what it is here.
MEANT = [
    ("train --compile=False", "--set run.compile=VALUE"),
    ("train --eval_interval=10", "--set eval.every=VALUE"),
    ("train --dtype=float16", "--set run.precision=VALUE"),
    ("train --block_size=64", "--set model.block_size=VALUE"),
    ("train --train_file 'my book.txt'", "--data"),
    ("train --run_name=x", "--name"),
    ("train --init_from gpt2", "--init"),
    ("train --tensorboard", "--set log.tensorboard=VALUE"),
    ("prepare --output_dir x", "--set data.dir=VALUE"),
    ("sample --n-predict 100", "--max-new-tokens"),
    ("sample --top-kk 5", "--top-k"),
    ("sample --num_samples=3", "-n"),
    ("sample --device=cpu", "--set run.device=VALUE"),
    ("eval --data x.txt", "--file"),
]


@pytest.mark.parametrize(("line", "meant"), MEANT, ids=[line for line, _ in MEANT])
def test_an_option_of_another_program_suggests_ours(gptlite, line, meant):
    command, typed, *_ = re.split("[ =]", line)
    error = f"error: gptlite {command}: there is no option {typed}. Did you mean {meant}?\n"
    assert gptlite(*shlex.split(line)).err == error
    assert set(re.findall(r"--set (\S+)=VALUE", meant)) <= set(KEYS)


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ("train --fp16", "Use --set run.precision=bf16, fp16 or fp32."),
        ("train --model gpt2", "--init begins with another model."),
        ("train --version", "See gptlite train --help."),
        ("sample --start 'the cat'", "Use --prompt VALUE; instead of FILE:NAME, use --prompt-file NAME."),
        ("sample --out_dir=x", "Name the run without an option: gptlite sample VALUE."),
    ],
)
def test_an_option_without_an_equivalent_gets_a_sentence(gptlite, line, advice):
    result = gptlite(*shlex.split(line))
    assert f"{shlex.split(line)[1].partition('=')[0]}. {advice}" in result.err
    assert (result.code, result.err.count("\n")) == (2, 1)


def test_what_is_said_about_options_of_other_programs_names_options_and_keys_that_exist():
    commands = get_command(app.app).commands
    every = {**commands, "list": commands["runs"].commands["list"]}
    options = {name: {option for param in each.params for option in param.opts} for name, each in every.items()}
    for name in ("train", "prepare", "sample", "eval"):
        for names, advice in MEANINGS[name].items():
            assert not options[name] & {f"--{word.replace('_', '-')}" for word in names.split()}
            named = set(re.findall(r"(?<!\S)--?[a-z][a-z-]*", advice.partition(": torchrun")[0]))
            assert named <= options[name], (name, advice)
            assert set(re.findall(r"\b[a-z]+\.[a-z_]+\b", advice)) <= set(KEYS), advice


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ([], "lower train.lr (it was 1e+30)"),
        (["train.warmup_steps=0", "eval.every=1"], "the validation loss is nan"),
    ],
    ids=["update", "evaluation"],
)
def test_training_that_diverges_ends_with_exit_3_and_one_line(gptlite, more, message):
    wild = ["train.lr=1e30", "train.optimizer=adamw", *more]
    result = gptlite("train", "-c", "nano.yaml", *(word for value in wild for word in ("--set", value)))
    assert (result.code, len(result.errors)) == (3, 1)
    assert message in result.errors[0]


@pytest.mark.parametrize("file", ["data/prepared/*/train-00000.bin", "runs/nano/run.json"])
def test_a_damaged_file_is_named_by_resume_and_eval(gptlite, trained, file):
    (path,) = Path().glob(file)
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    for arguments in (["train", "--resume", "nano", "--set", "train.max_steps=8"], ["eval"]):
        assert gptlite(*arguments).refuses(path.name)


def deep_recursion(*_: object) -> None:
    deep_recursion()


def raising(error: Exception) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    ("fail", "code", "message"),
    [
        (
            raising(OSError(errno.EIO, "Input/output error", "a/b")),
            4,
            "a/b: cannot go on: Input/output error. The disk",
        ),
        (raising(OSError(errno.EMFILE, "Too many open files")), 4, "gptlite: cannot go on: Too many open files. "),
        (raising(MemoryError()), 2, "the memory is full. Lower the size of the model, of the batches "),
        (raising(RuntimeError("[enforce fail] can't allocate memory: 9 bytes")), 2, "the memory is full. "),
        (deep_recursion, 2, "the input is nested too deeply. "),
    ],
    ids=["disk", "no path", "memory", "memory of torch", "depth"],
)
def test_what_the_system_refuses_anywhere_is_one_line(gptlite, monkeypatch, fail, code, message):
    monkeypatch.setattr("gptlite.runs.summary.read_runs", fail)
    result = gptlite("runs", "list")
    assert result.code == code
    assert result.err.startswith(f"error: {message}")
    assert result.err.count("\n") == 1


def test_a_bug_keeps_its_traceback(gptlite, monkeypatch):
    monkeypatch.setattr("gptlite.runs.summary.read_runs", raising(RuntimeError("a bug")))
    with pytest.raises(RuntimeError, match="a bug"):
        gptlite("runs", "list")


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE: the environment variable is 'two'. torchrun sets a number"),
        ({"WORLD_SIZE": "2", "RANK": "two"}, "RANK: the environment variable is 'two'. torchrun sets a number"),
        (
            {"WORLD_SIZE": "2"},
            "WORLD_SIZE: there are to be 2 processes, but RANK, MASTER_ADDR, MASTER_PORT are not set. ",
        ),
    ],
    ids=str,
)
def test_variables_of_torchrun_that_are_wrong_are_named(gptlite, monkeypatch, variables, message):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert gptlite("train", "-c", "nano.yaml").refuses(f"error: {message}")
    assert not Path("runs").exists()
