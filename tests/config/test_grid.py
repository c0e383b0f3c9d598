"""A grid of configs: which points there are, what they are called, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from gptlite.config.grid import SweepAxis, load_points, names_of, points, read_axes, split
from gptlite.config.loading import load_config, override_value
from gptlite.errors import ConfigError
from gptlite.runs.run import Run


def test_every_combination_is_a_point_and_the_last_key_changes_fastest():
    axes = read_axes(["train.lr=1e-3,3e-3", "tokenizer.kind=char,bpe"])
    assert [(point.name, tuple(point.values.values())) for point in points(axes, "small-sweep")] == [
        ("small-sweep-01-lr=0.001-kind=char", (0.001, "char")),
        ("small-sweep-02-lr=0.001-kind=bpe", (0.001, "bpe")),
        ("small-sweep-03-lr=0.003-kind=char", (0.003, "char")),
        ("small-sweep-04-lr=0.003-kind=bpe", (0.003, "bpe")),
    ]


def test_keys_of_one_name_keep_their_section():
    axes = read_axes(["eval.every=5,10", "save.every=5", "model.n_layer=1"])
    assert [point.name for point in points(axes, "s")] == [
        "s-01-eval.every=5-save.every=5-n_layer=1",
        "s-02-eval.every=10-save.every=5-n_layer=1",
    ]


def test_names_sort_as_the_points_do_however_many_there_are():
    axes = [SweepAxis("run.seed", tuple(range(11))), SweepAxis("train.warmup_steps", tuple(range(10)))]
    names = [point.name for point in points(axes, "s")]
    assert names == sorted(names)
    assert len(set(names)) == 110
    assert names[0] == "s-001-seed=0-warmup_steps=0"


@pytest.mark.parametrize(
    ("typed", "values"),
    [
        ("1e-3,0.01,auto", [0.001, 0.01, "auto"]),
        ("char, bpe", ["char", "bpe"]),
        ("null,300", [None, 300]),
        ("true,false,auto", [True, False, "auto"]),
        ("'a, b',c", ["a, b", "c"]),
        ('"a \\" b, c",d', ['a " b, c', "d"]),
        ("[a.txt, b.txt],c.txt", [["a.txt", "b.txt"], "c.txt"]),
        ("['x,]', y],z", [["x,]", "y"], "z"]),
        ("don't,it's: a # b", ["don't", "it's: a # b"]),
        ("'',x", ["", "x"]),
    ],
)
def test_values_are_what_set_would_take_each_of_them_for(typed, values):
    (axis,) = read_axes([f"eval.prompt={typed}"])
    assert list(axis.values) == values
    assert [override_value(item) for item in split(typed) or ()] == values


@pytest.mark.parametrize("typed", ["'a", "[a,b", '"a"b,c', "{a: 1},b", "a,[b", "[a]b"])
def test_quotes_and_brackets_that_do_not_end_with_a_value_are_refused(typed):
    assert split(typed) is None
    with pytest.raises(ConfigError, match="values between commas, each quoted text"):
        read_axes([f"eval.prompt={typed}"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train.lr"], "--sweep: train.lr: section.key=value,value,..., such as train.lr=1e-3,3e-3"),
        (["train=1,2"], "--sweep: train = 1,2: section.key=value; train is a whole section"),
        (["train.lrr=1,2"], "--sweep: train.lrr = 1,2: no such key; did you mean train.lr?"),
        (["train.lr=1,,2"], "--sweep: train.lr = 1,,2: values between commas, none of them empty"),
        (["train.lr="], "values between commas, none of them empty"),
        (["train.lr=1e-3,1,0.001"], "--sweep: train.lr = 1e-3,1,0.001: each value once; leave out one 0.001"),
        (["train.lr=1", "train.lr=2"], "--sweep: train.lr = given 2 times: once, with all of its values"),
        (["run.dir=a,b"], "--sweep: run.dir = several folders: the runs of a sweep lie in one"),
        (["run.seed=" + ",".join(map(str, range(1001)))], "--sweep = 1,001 runs: at most 1,000"),
        (["model.n_layer=1"], "--sweep: model.n_layer = given as a single value too: one of the two"),
    ],
)
def test_what_makes_no_grid_is_refused(words, message):
    with pytest.raises(ConfigError) as refused:
        read_axes(words, taken=["model.n_layer"])
    assert [message in problem for problem in refused.value.problems] == [True]


def test_every_problem_of_every_point_is_named_once_with_where_it_is(tmp_path: Path):
    path = tmp_path / "c.yaml"
    path.write_text("model: {n_layer: none}\n")
    axes = read_axes(["train.lr=1,x", "tokenizer.kind=char,bpe", "tokenizer.vocab_size=null,300"])
    with pytest.raises(ConfigError) as refused:
        load_points(path, [], points(axes, "s"))
    assert refused.value.problems == (
        f"{path}:1: model.n_layer = none: a whole number >= 1",
        "--sweep: tokenizer.vocab_size = 300: null, since kind char has its own size; or set tokenizer.kind to bpe "
        "(in s-02-lr=1-kind=char-vocab_size=300 and 1 more)",
        "--sweep: train.lr = x: auto or a number > 0 (in s-05-lr=x-kind=char-vocab_size=null and 3 more)",
    )


def test_a_point_is_the_config_that_set_makes_of_its_settings(tmp_path: Path):
    path = tmp_path / "c.yaml"
    path.write_text("train: {max_steps: 7}\n")
    words = ["train.max_minutes=0.5,3e-5", "eval.prompt='a, b',\"on\"", "data.source=[x, y],z"]
    grid = points(read_axes(words), "s")
    configs = load_points(path, ["model.n_layer=2"], grid)
    assert configs == [load_config(path, ["model.n_layer=2", *point.settings]) for point in grid]
    assert len({repr(cfg) for cfg in configs}) == 8


@pytest.mark.parametrize("value", ["a/b c.txt/", "..", "x.tmp-y", "x.tmp", "ä" * 300, "\n\x00", "-", "😀", "latest"])
def test_names_are_names_of_runs_whatever_the_values(value):
    grid = points([SweepAxis("eval.prompt", (value,)), SweepAxis("data.encoding", ("ü" * 80, 1))], "s" * 150)
    for point in grid:
        Run.check_name(point.name, point.name)


def test_the_runs_of_a_sweep_are_told_from_those_of_others():
    grid = points(read_axes(["train.beta1=0.8", "model.n_layer=2"]), "a.b")
    assert all(names_of("a.b").fullmatch(point.name) for point in grid)
    others = ["a.b", "a.b-2", "a.b-2-copy", "axb-01-beta1=0.8", "a.b-1-01-beta1=0.8", "a.b-01-02-beta1=0.8"]
    assert [name for name in others if names_of("a.b").fullmatch(name)] == []
