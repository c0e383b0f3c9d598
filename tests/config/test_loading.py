import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptlite.config.loading import Override, dump_config, load_config, parse_config
from gptlite.config.schema import RunConfig
from gptlite.errors import ConfigError


def problems(load, *arguments):
    with pytest.raises(ConfigError) as caught:
        load(*arguments)
    return [str(problem) for problem in caught.value.problems]


def problems_of(text):
    return problems(parse_config, text, "my.yaml")


def problems_of_file(path, text, *overrides):
    path.write_text(text)
    return problems(load_config, path, overrides)


def problem_of_override(override):
    (problem,) = problems(load_config, None, [override])
    return problem


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
  decay_fraction: 0.1
optim:
  lr: 3
"""
    assert problems_of_file(Path("my.yaml"), text, "log.every=0") == [
        "my.yaml:2: model.n_embd is 130, which is not a multiple of n_head (4). Use 128 or 132.",
        "my.yaml:3: model.seq_len is not a key of the config. Did you mean model.block_size?",
        "my.yaml:5: train.micro_batch_size is x, but it must be auto or a whole number >= 1.",
        "my.yaml:7: train.lr was given before, in line 6. Keep one of them.",
        "my.yaml:8: train.decay_fraction is 0.1, but schedule is linear, which does not use it. "
        "Use train.decay_fraction=null or train.schedule=constant.",
        "my.yaml:9: optim is not a section of the config. Did you mean train?",
        "log.every is 0, but it must be a whole number >= 1.",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("train: {lr: '3e-4'}", '1: train.lr is "3e-4", but it must be auto or a number > 0. Write 0.0003.'),
        (
            "train: {max_steps: 1e3}",
            "1: train.max_steps is 1000.0, but it must be a whole number >= 1 or null. Write 1000.",
        ),
        (
            "train: {max_steps: 1_000}",
            "1: train.max_steps is 1_000, but it must be a whole number >= 1 or null. Write 1000.",
        ),
        ("train: {max_steps: 1.5}", "1: train.max_steps is 1.5, but it must be a whole number >= 1 or null."),
        (
            "train: {max_steps: 99999999999999999999}",
            "1: train.max_steps is 99999999999999999999, but it must be a whole number >= 1 or null. "
            "The largest number is 2**63 - 1.",
        ),
        ("train: {lr: .nan}", "1: train.lr is .nan, but it must be auto or a number > 0."),
        ("train: {lr: 1e999}", "1: train.lr is .inf, but it must be auto or a number > 0."),
        ("train: {lr:}", "1: train.lr is null, but it must be auto or a number > 0."),
        ("train: {lr: true}", "1: train.lr is true, but it must be auto or a number > 0."),
        ("train: {lr: [1, 2]}", "1: train.lr is [1, 2], but it must be auto or a number > 0."),
        ("train: {lr: {a: 1}}", "1: train.lr is {a: 1}, but it must be auto or a number > 0."),
        (
            "train: {patience: None}",
            "1: train.patience is None, but it must be a whole number >= 1 or null. Write null.",
        ),
        (
            "train: {schedule: cosin}",
            "1: train.schedule is cosin, but it must be cosine, linear or constant. Write cosine.",
        ),
        ("log: {tensorboard: on}", "1: log.tensorboard is on, but it must be true or false. Write true."),
        ("eval: {prompt: 12}", '1: eval.prompt is 12, but it must be text. Write "12".'),
        ('eval: {prompt: "\\ud800"}', '1: eval.prompt is "\\ud800", but it must be text.'),
        (
            "sample: {stop: END}",
            "1: sample.stop is END, but it must be a list of texts, none of them empty. Write [END].",
        ),
        (
            "data: {encoding: utf-99}",
            "1: data.encoding is utf-99, but it must be a text encoding Python knows, such as utf-8, cp1252 or utf-16.",
        ),
        ("run: 3", "1: run is a section, not 3. Write its keys indented below run:."),
        (
            "- run",
            " a config is a mapping with the sections run, data, tokenizer, model, train, eval, save, log, sample.",
        ),
        ("lr: 3", "1: lr is not inside a section. Did you mean lr in the section train?"),
        ("train.lr: 3", "1: train.lr is not inside a section. Did you mean lr in the section train?"),
        ("trian: {lr: 3}", "1: trian is not a section of the config. Did you mean train?"),
        (
            "qqq: {lr: 3}",
            "1: qqq is not a section of the config. The sections are run, data, tokenizer, model, train, eval, save, "
            "log, sample.",
        ),
        ("model: {qqq: 3}", "1: model.qqq is not a key of the config. The built-in small.yaml lists every key."),
        ("model:\nrun:\nmodel:\n", "3: model was given before, in line 1. Keep one of them."),
        (
            "tokenizer: {kind: gpt2, vocab_size: 300}",
            "1: tokenizer.vocab_size is 300, but kind is gpt2, which determines its own size. Use "
            "tokenizer.vocab_size=null or tokenizer.kind=bpe.",
        ),
        (
            "train: {decay_fraction: 0}",
            "1: train.decay_fraction is 0, but schedule is linear, which does not use it. Use "
            "train.decay_fraction=null or train.schedule=constant.",
        ),
        (
            "train: {micro_batch_size: 3}",
            "1: train.batch_size is 16, which is not a multiple of micro_batch_size (3). Use a multiple of 3 or "
            "train.micro_batch_size=auto.",
        ),
        (
            "train: {max_steps: 9, max_minutes: 0.5}",
            "1: train.max_steps is 9 and max_minutes is 0.5, but only one of them can end the training. Set the "
            "other to null.",
        ),
        (
            "train: {max_steps: 9, epochs: 2, max_minutes: 0.5}",
            "1: train.max_steps is 9, epochs is 2 and max_minutes is 0.5, but only one of them can end the training. "
            "Set the others to null.",
        ),
        (
            "sample: {top_p: 0.9, beams: 4}",
            "1: sample.top_p is 0.9, but beams is 4, and beam search does not sample. Set top_p to null, or beams to "
            "null.",
        ),
        (
            "sample: {n: 5, beams: 4}",
            "1: sample.n is 5, but beam search with 4 beams finds at most 4 texts. Set beams to 5 or more.",
        ),
        (
            "train: {scheduled_sampling_start: 0.5}",
            "1: train.scheduled_sampling is 0, so no input is replaced, and scheduled_sampling_decay, _start and "
            "_until do nothing. Leave them out, or set scheduled_sampling above 0.",
        ),
        (
            "train: {scheduled_sampling: 0.1, scheduled_sampling_start: 0.5}",
            "1: train.scheduled_sampling_start is 0.5, above scheduled_sampling (0.1), but the fraction of replaced "
            "inputs only rises. Use at most 0.1.",
        ),
        (
            "train: {momentum: 0.5, optimizer: adamw}",
            "1: train.momentum is 0.5, but optimizer is adamw, which uses beta1 and beta2 instead. Use "
            "train.momentum=null or train.optimizer=muon.",
        ),
        ("model: {n_embd: 1}", "1: model.n_embd is 1, which is not a multiple of n_head (4). Use 4."),
        ("run: {dir:}", "1: run.dir is null, but it must be the path of a folder."),
        ("\n\ttrain: 3", "2: there is a tab here. Indent with spaces."),
    ],
)
def test_a_problem_says_where_it_is_what_is_wrong_and_what_is_accepted(text, problem):
    assert problems_of(text) == [f"my.yaml:{problem}"]


def test_the_keys_of_muon_may_be_set_where_the_optimizer_is_auto():
    train = parse_config("train: {momentum: 0.5, adamw_lr: 0.1}", "my.yaml").train
    assert (train.optimizer, train.momentum, train.adamw_lr) == ("auto", 0.5, 0.1)


def test_a_value_of_any_length_is_cut_in_the_message():
    (problem,) = problems_of(f"train: {{lr: {'x' * 9000}, }}")
    assert len(problem) < 200


def test_at_most_a_hundred_problems_are_listed():
    problems = problems_of("".join(f"key{i}: 1\n" for i in range(5000)))
    assert len(problems) == 101
    assert problems[-1] == "my.yaml: These are the first 100 problems. Is this the right file?"


def test_a_rule_is_not_checked_for_a_key_that_is_refused_itself():
    assert len(problems_of("model: {n_embd: 130, n_head: 0}")) == 1


def test_a_rule_is_checked_beside_an_unrelated_problem_of_its_section():
    first, second = problems_of("train:\n  micro_batch_size: 3\n  lr: x\n")
    assert first.startswith("my.yaml:2: train.batch_size is 16")
    assert second.startswith("my.yaml:3: train.lr is x")


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
        ("train.lr", "train.lr is not of the form section.key=value, such as train.lr=3e-4."),
        ("=3", "=3 is not of the form section.key=value, such as train.lr=3e-4."),
        ("train=3", "train is a whole section. Set one of its keys: section.key=value."),
        ("tokenizer=gpt2", "tokenizer is a whole section. Did you mean tokenizer.kind?"),
        ("lr=3", "lr is not a key of the config. Did you mean train.lr?"),
        ("trian.lr=3", "trian.lr is not a key of the config. Did you mean train.lr?"),
        ("train.=3", "train. is not a key of the config. The built-in small.yaml lists every key."),
        ("run.seed=-1", "run.seed is -1, but it must be a whole number >= 0."),
        ("data.source=[a", "data.source cannot be set to [a: a bracket is never closed, or a comma is missing."),
        ("run.dir={a: 1}", "run.dir is {a: 1}, but it must be the path of a folder."),
    ],
)
def test_a_problem_of_a_text_override_has_no_place_of_its_own(override, problem):
    assert problem_of_override(override) == problem


def test_a_rule_broken_by_an_override_has_the_place_of_the_override(tmp_path):
    given = (tmp_path / "my.yaml", "model:\n  n_embd: 130\n  n_head: 10\n", Override("--heads", "model.n_head", 4))
    problem = "--heads: model.n_embd is 130, which is not a multiple of n_head (4). Use 128 or 132."
    assert problems_of_file(*given) == [problem]


def test_an_override_takes_its_value_as_it_is():
    assert load_config(None, [Override("--data", "data.source", "[a]: b.txt")]).data.source == "[a]: b.txt"
    problem = problem_of_override(Override("--data", "data.source", ""))
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


def test_an_unreadable_file_is_refused(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.open", refuse)
    with pytest.raises(ConfigError, match=r"my.yaml: the file cannot be read: Permission denied"):
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
