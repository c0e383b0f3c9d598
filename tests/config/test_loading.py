import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptlite.config.loading import Override, dump_config, load_config, parse_config
from gptlite.config.schema import RunConfig
from gptlite.errors import ConfigError


def problems_of(text):
    with pytest.raises(ConfigError) as caught:
        parse_config(text, "my.yaml")
    return caught.value.problems


def problems_of_file(path, text, *overrides):
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(path, overrides)
    return caught.value.problems


def problem_of_set(*overrides):
    with pytest.raises(ConfigError) as caught:
        load_config(None, overrides)
    (problem,) = caught.value.problems
    return problem


def test_nothing_given_means_the_defaults():
    assert load_config(None) == RunConfig()


@pytest.mark.parametrize("text", ["train:\n", "train: {}\nmodel:\n  # n_layer: 3\n"])
def test_an_empty_section_means_its_defaults(text):
    assert parse_config(f"{text}log: {{every: 7}}\n", "my.yaml") == RunConfig().with_values({"log.every": 7})


@pytest.mark.parametrize("text", ["", "# comment\n", "---\n", "{}", "train:\n"])
def test_a_file_without_a_key_is_refused(text):
    with pytest.raises(ConfigError, match=r"^my\.yaml: no key in it: a config sets at least one; "):
        parse_config(text, "my.yaml")


def test_values_of_the_file_are_taken():
    cfg = parse_config("train:\n  lr: 3e-4\n  max_steps: 0100\ndata: {source: [a.txt, 'b c']}\n", "my.yaml")
    assert (cfg.train.lr, cfg.train.max_steps, cfg.data.source) == (0.0003, 100, ["a.txt", "b c"])


def test_a_whole_number_stands_for_a_float():
    lr = parse_config("train: {lr: 1}", "my.yaml").train.lr
    assert lr == 1.0
    assert isinstance(lr, float)


def test_all_problems_come_at_once_in_the_order_of_lines(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = """\
model:
  n_embd: 130
  seq_len: 64
train:
  micro_batch_size: x
  lr: 0.1
  lr: 0.2
  warmup_steps: 2000
optim:
  lr: 3
"""
    assert problems_of_file(Path("my.yaml"), text, "log.every=0") == (
        "my.yaml:2: model.n_embd = 130: a multiple of n_head (4), such as 128",
        "my.yaml:3: model.seq_len = 64: no such key; did you mean model.block_size?",
        "my.yaml:5: train.micro_batch_size = x: auto or a whole number >= 1",
        "my.yaml:7: train.lr: given before in line 6; keep one of them",
        "my.yaml:8: train.warmup_steps = 2000: at most max_steps (1000)",
        "my.yaml:9: optim: no such section; did you mean train?",
        "--set: log.every = 0: a whole number >= 1",
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("train: {lr: '3e-4'}", '1: train.lr = "3e-4": auto or a number > 0; write 0.0003'),
        ("train: {max_steps: 1e3}", "1: train.max_steps = 1000.0: a whole number >= 1 or null; write 1000"),
        ("train: {max_steps: 1_000}", "1: train.max_steps = 1_000: a whole number >= 1 or null; write 1000"),
        ("train: {max_steps: 1.5}", "1: train.max_steps = 1.5: a whole number >= 1 or null"),
        ("train: {max_steps: 99999999999999999999}", "1: train.max_steps = 99999999999999999999: a whole number >= 1 or null, below 2**63"),  # noqa: E501
        ("train: {lr: .nan}", "1: train.lr = .nan: auto or a number > 0"),
        ("train: {lr: 1e999}", "1: train.lr = .inf: auto or a number > 0"),
        ("train: {lr:}", "1: train.lr = null: auto or a number > 0"),
        ("train: {lr: true}", "1: train.lr = true: auto or a number > 0"),
        ("train: {lr: [1, 2]}", "1: train.lr = [1, 2]: auto or a number > 0"),
        ("train: {lr: {a: 1}}", "1: train.lr = {a: 1}: auto or a number > 0"),
        ("train: {patience: None}", "1: train.patience = None: a whole number >= 1 or null; write null"),
        ("train: {schedule: cosin}", "1: train.schedule = cosin: cosine, linear or constant; write cosine"),
        ("log: {tensorboard: on}", "1: log.tensorboard = on: true or false; write true"),
        ("data: {normalize: ~}", "1: data.normalize = null: none or nfc; write none"),
        ("eval: {prompt: 12}", '1: eval.prompt = 12: text; write "12"'),
        ("eval: {prompt:}", '1: eval.prompt = null: text; write ""'),
        ("eval: {prompt: \"\\ud800\"}", '1: eval.prompt = "\\ud800": text'),
        ("sample: {stop: END}", "1: sample.stop = END: a list of texts, none of them empty; write [END]"),
        ("data: {encoding: utf-99}", "1: data.encoding = utf-99: a text encoding Python knows, such as utf-8, cp1252 or utf-16"),  # noqa: E501
        ("run: 3", "1: run = 3: a section with keys; write them indented below run:"),
        ("- run", "1: [run]: a config is a mapping with sections run, data, tokenizer, model, train, eval, save, log, sample"),  # noqa: E501
        ("lr: 3", "1: lr = 3: no section; did you mean lr in the section train?"),
        ("train.lr: 3", "1: train.lr = 3: no section; did you mean lr in the section train?"),
        ("trian: {lr: 3}", "1: trian: no such section; did you mean train?"),
        ("qqq: {lr: 3}", "1: qqq: no such section; the sections are run, data, tokenizer, model, train, eval, save, log, sample"),  # noqa: E501
        ("model: {qqq: 3}", "1: model.qqq = 3: no such key; the built-in small.yaml shows every key"),
        ("model:\nrun:\nmodel:\n", "3: model: given before in line 1; keep one of them"),
        ("tokenizer: {kind: gpt2, vocab_size: 300}", "1: tokenizer.vocab_size = 300: null, since kind gpt2 has its own size; or set tokenizer.kind to bpe"),  # noqa: E501
        ("train: {decay_fraction: 0}", "1: train.decay_fraction = 0: null, since only schedule constant has it (schedule is linear)"),  # noqa: E501
        ("train: {micro_batch_size: 3}", "1: train.micro_batch_size = 3: auto or a divisor of batch_size (16)"),
        ("train: {max_steps: 10}", "1: train.max_steps = 10: at least warmup_steps (50); set that lower too"),
        ("model: {n_embd: 1}", "1: model.n_embd = 1: a multiple of n_head (4), such as 4"),
        ("run: {dir:}", "1: run.dir = null: the path of a folder"),
        ("\n\ttrain: 3", "2: a tab; indent with spaces"),
    ],
)  # fmt: skip
def test_a_problem_says_where_what_and_what_is_accepted(text, problem):
    assert problems_of(text) == (f"my.yaml:{problem}",)


def test_a_value_of_any_length_is_cut_in_the_message():
    (problem,) = problems_of(f"train: {{lr: {'x' * 9000}, }}")
    assert len(problem) < 200


def test_the_yaml_of_something_else_is_given_up_after_a_hundred_problems():
    problems = problems_of("".join(f"key{i}: 1\n" for i in range(5000)))
    assert len(problems) == 101
    assert problems[-1] == "my.yaml: 100 problems so far, and reading ends; is this the right file?"


def test_a_rule_is_not_held_against_a_key_that_is_wrong_itself():
    assert len(problems_of("model: {n_embd: 130, n_head: 0}")) == 1


def test_set_replaces_the_file_and_its_problem(tmp_path):
    path = tmp_path / "my.yaml"
    path.write_text("train: {lr: oops}")
    assert load_config(path, ["train.lr=3e-4"]).train.lr == 0.0003


@pytest.mark.parametrize(
    ("override", "section", "key", "value"),
    [
        ("train.lr=3e-4", "train", "lr", 3e-4),
        (" train.lr = 1 ", "train", "lr", 1.0),
        ("train.patience=null", "train", "patience", None),
        ("train.patience=", "train", "patience", None),
        ("log.tensorboard=false", "log", "tensorboard", False),
        ("data.source=[a.txt, 'b c']", "data", "source", ["a.txt", "b c"]),
        ("data.source=a=b.txt", "data", "source", "a=b.txt"),
        ("eval.prompt=def f(a: int): # &x", "eval", "prompt", "def f(a: int): # &x"),
        ('eval.prompt="12"', "eval", "prompt", "12"),
        ("eval.prompt='C:\\dir'", "eval", "prompt", "C:\\dir"),
        ('eval.prompt="a\\nb"', "eval", "prompt", "a\nb"),
    ],
)
def test_set_takes_scalars_and_lists_of_yaml(override, section, key, value):
    assert getattr(getattr(load_config(None, [override]), section), key) == value


def test_the_last_of_two_overrides_counts():
    assert load_config(None, ["run.seed=1", "run.seed=2"]).run.seed == 2


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        ("train.lr", "train.lr: section.key=value, such as train.lr=3e-4"),
        ("=3", '=3: section.key=value, such as train.lr=3e-4'),
        ("train=3", "train = 3: section.key=value; train is a whole section"),
        ("lr=3", "lr = 3: no such key; did you mean train.lr?"),
        ("trian.lr=3", "trian.lr = 3: no such key; did you mean train.lr?"),
        ("train.=3", "train. = 3: no such key; the built-in small.yaml shows every key"),
        ("run.seed=-1", "run.seed = -1: a whole number >= 0"),
        ("data.source=[a", "data.source = [a: a bracket that is never closed, or a missing comma"),
        ("run.dir={a: 1}", "run.dir = {a: 1}: the path of a folder"),
    ],
)  # fmt: skip
def test_a_problem_of_set_names_set(override, problem):
    assert problem_of_set(override) == f"--set: {problem}"


def test_a_rule_broken_by_an_override_names_the_override(tmp_path):
    problem = problems_of_file(tmp_path / "my.yaml", "model:\n  n_embd: 130\n  n_head: 10\n", "model.n_head=4")
    assert problem == ("--set: model.n_head = 4: a divisor of n_embd (130)",)


def test_an_override_of_another_option_names_that_option():
    assert load_config(None, [Override("--data", "data.source", "[a]: b.txt")]).data.source == "[a]: b.txt"
    assert problem_of_set(Override("--data", "data.source", "")).startswith('--data: data.source = "": a file, folder')


def test_a_byte_order_mark_is_no_problem(tmp_path):
    path = tmp_path / "bom.yaml"
    path.write_bytes(b"\xef\xbb\xbftrain: {lr: 1}\r\n")
    assert load_config(path).train.lr == 1.0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff\xfet\0r\0", "not UTF-8 text (byte 0xff at offset 0)"),
        (b"eval: {prompt: caf\xe9}", "not UTF-8 text (byte 0xe9 at offset 18)"),
        (b"\x7fELF\x02\x01\x00", "1: character U+007F"),
        (b"a: 1\n" * 20_000, "more than 65536 bytes"),
        (None, "no such file"),
        ("folder", "this is a folder"),
    ],
)
def test_what_is_no_config_file_is_refused_in_one_line(tmp_path, content, message):
    path = tmp_path / "my.yaml"
    if content == "folder":
        path.mkdir()
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert str(caught.value).startswith(f"{path}:")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unreadable_file_is_refused(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.open", refuse)
    with pytest.raises(ConfigError, match=r"my.yaml: cannot be read \(Permission denied\)"):
        load_config(tmp_path / "my.yaml")


def test_loading_a_config_does_not_import_torch():
    code = (
        "import sys; from gptlite.config.loading import load_config; load_config(None); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


utf8_text = st.text(st.characters(codec="utf-8"))
path_text = utf8_text.filter(lambda text: text.strip() and "\0" not in text)


@given(
    source=path_text | st.lists(path_text, min_size=1, max_size=3),
    folder=path_text,
    prompt=utf8_text,
    stop=st.lists(utf8_text.filter(bool), max_size=3),
    lr=st.floats(min_value=0, exclude_min=True, allow_infinity=False),
    seed=st.integers(0, 2**63 - 1),
)
def test_a_dumped_config_reads_back_equal(source, folder, prompt, stop, lr, seed):
    values = {"data.source": source, "run.dir": folder, "eval.prompt": prompt, "sample.stop": stop}
    cfg = RunConfig().with_values(values | {"train.lr": lr, "run.seed": seed})
    assert parse_config(dump_config(cfg), "config.yaml") == cfg


def test_a_dump_names_every_key():
    expected = [
        line for name, keys in RunConfig().model_dump().items() for line in (f"{name}:", *(f"  {k}:" for k in keys))
    ]
    dumped = dump_config(RunConfig()).splitlines()
    assert [line.split(":")[0] + ":" for line in dumped] == expected


@pytest.mark.parametrize(
    ("text", "meant"),
    [("0,001", "write 0.001"), ("1,5", "write 1.5"), ("1,000", "write 1000"), ("1_000", "write 1000")],
)
def test_a_comma_is_a_thousands_mark_or_a_decimal_point_and_never_dropped_from_a_fraction(text, meant):
    with pytest.raises(ConfigError, match=rf"{meant}$"):
        load_config(None, [f"train.lr={text}"])
