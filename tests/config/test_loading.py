import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptlite.config.loading import Override, dump_config, load_config, parse_config
from gptlite.config.schema import RunConfig
from gptlite.errors import ConfigError

MESSAGES = Path(__file__).with_name("messages.txt")


def problems(load, *arguments):
    with pytest.raises(ConfigError) as caught:
        load(*arguments)
    return [str(problem) for problem in caught.value.problems]


def problems_of(text):
    return problems(parse_config, text, "my.yaml")


def problems_of_file(path, text, *overrides):
    path.write_text(text)
    return problems(load_config, path, overrides)


def test_nothing_given_means_the_defaults():
    assert load_config(None) == RunConfig()


@pytest.mark.parametrize("text", ["train:\n", "train: {}\nmodel:\n  # n_layer: 3\n"])
def test_an_empty_section_means_its_defaults(text):
    assert parse_config(f"{text}log: {{every: 7}}\n", "my.yaml") == RunConfig().with_values({"log.every": 7})


@pytest.mark.parametrize("text", ["", "# comment\n", "---\n", "{}", "train:\n"])
def test_a_file_without_a_key_is_refused(text):
    with pytest.raises(ConfigError, match=r"^my\.yaml: no key is set here\. "):
        parse_config(text, "my.yaml")


def test_values_of_the_file_are_taken():
    cfg = parse_config("train:\n  lr: 3e-4\n  max_steps: 0100\ndata: {source: [a.txt, 'b c']}\n", "my.yaml")
    assert (cfg.train.lr, cfg.train.max_steps, cfg.data.source) == (0.0003, 100, ["a.txt", "b c"])


def test_all_problems_come_at_once_in_the_order_of_lines(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = """\
model:
  n_embd: 130
  seq_len: 64
train:
  micro_batch_size: x
  lr: 0
  decay_fraction: 0.1
optim:
  lr: 3
"""
    assert problems_of_file(Path("my.yaml"), text, "log.every=0") == [
        "my.yaml:2: model.n_embd is 130, which is not a multiple of n_head (4). Use 128 or 132.",
        "my.yaml:3: model.seq_len is not a key of the config. Did you mean model.block_size?",
        "my.yaml:5: train.micro_batch_size is x, but it must be auto or a whole number >= 1.",
        "my.yaml:6: train.lr is 0, but it must be auto or a number > 0.",
        "my.yaml:7: train.decay_fraction is 0.1, but schedule is linear, which does not use it. "
        "Use train.decay_fraction=null or train.schedule=constant.",
        "my.yaml:8: optim is not a section of the config. Did you mean train?",
        "log.every is 0, but it must be a whole number >= 1.",
    ]


def test_a_problem_says_where_it_is_what_is_wrong_and_what_is_accepted():
    """messages.txt has a config (⏎ for a new line) or an override on each line, and below it its problems.

    UPDATE_MESSAGES=1 in the environment writes them again.
    """
    recorded = MESSAGES.read_text("utf-8")
    said = ""
    for line in re.findall(r"^\S.*", recorded, re.MULTILINE):
        text = line.removeprefix("--set ").replace("⏎", "\n")
        found = problems(load_config, None, [text]) if line.startswith("--set ") else problems_of(text)
        said += "\n    ".join([line, *found]) + "\n"
    if "UPDATE_MESSAGES" in os.environ:
        MESSAGES.write_text(said, "utf-8")
    else:
        assert said == recorded


def test_the_keys_of_muon_may_be_set_where_the_optimizer_is_auto():
    train = parse_config("train: {momentum: 0.5, adamw_lr: 0.1}", "my.yaml").train
    assert (train.optimizer, train.momentum, train.adamw_lr) == ("auto", 0.5, 0.1)


def test_set_replaces_the_file_and_its_problem(tmp_path):
    path = tmp_path / "my.yaml"
    path.write_text("train: {lr: oops}")
    assert load_config(path, ["train.lr=3e-4"]).train.lr == 0.0003


@pytest.mark.parametrize(
    ("override", "section", "key", "value"),
    [
        ("train.lr=3e-4", "train", "lr", 3e-4),
        (" train.lr = 1 ", "train", "lr", 1.0),  # a whole number stands for a float
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
    found = getattr(getattr(load_config(None, [override]), section), key)
    assert (found, type(found)) == (value, type(value))


def test_the_last_of_two_overrides_counts():
    assert load_config(None, ["run.seed=1", "run.seed=2"]).run.seed == 2


def test_a_rule_broken_by_an_override_has_the_place_of_the_override(tmp_path):
    given = (tmp_path / "my.yaml", "model:\n  n_embd: 130\n  n_head: 10\n", Override("--heads", "model.n_head", 4))
    problem = "--heads: model.n_embd is 130, which is not a multiple of n_head (4). Use 128 or 132."
    assert problems_of_file(*given) == [problem]


def test_an_override_takes_its_value_as_it_is():
    assert load_config(None, [Override("--data", "data.source", "[a]: b.txt")]).data.source == "[a]: b.txt"
    (problem,) = problems(load_config, None, [Override("--data", "data.source", "")])
    assert problem.startswith('--data: data.source is "", but it must be a file, folder')


def test_a_byte_order_mark_is_no_problem(tmp_path):
    path = tmp_path / "bom.yaml"
    path.write_bytes(b"\xef\xbb\xbftrain: {lr: 1}\r\n")
    assert load_config(path).train.lr == 1.0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff\xfet\0r\0", "the file is not UTF-8 text (byte 0xff at offset 0)"),
        (b"eval: {prompt: caf\xe9}", "the file is not UTF-8 text (byte 0xe9 at offset 18)"),
        (b"\x7fELF\x02\x01\x00", "1: the character U+007F"),
        (b"a: 1\n" * 20_000, "more than 65,536 bytes"),
        (None, "the file cannot be read: No such file or directory. Check the path"),
        ("folder", "the file cannot be read: Is a directory."),
    ],
)
def test_a_file_that_is_not_a_config_is_refused_in_one_line(tmp_path, content, message):
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
